//! The plan of a repair: what is done about each kind of finding.

use std::fmt;

use larder_check::{AffectedFile, Kind, KindFindings, Report};

/// What a repair does about findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The superblocks are written anew from what the trees say.
    Superblocks,
    /// A good copy is written over a bad one.
    Copies,
    /// Chunks are found again by what is left of their trees, and by their content.
    Chunks,
    /// Tree blocks are written anew with what can be read of them.
    Blocks,
    /// Items of the root tree are made to agree with the trees.
    Roots,
    /// The device tree and the devices' numbers are computed from the chunks.
    Devices,
    /// The extent tree, block groups and free space are computed from all trees.
    Space,
    /// Names, inodes and what they count are made to agree.
    Files,
    /// Checksums that are missing are computed, those of nothing are removed.
    Checksums,
    /// One bit of data or of its checksum is turned back, where that makes them match.
    Bits,
    /// Data that matches no checksum is accepted as it is, and gets the checksum that it has.
    Data,
    /// The tree of uuids is made anew.
    Uuids,
    /// Counts of quota groups are set.
    Quotas,
    /// The log is dropped, with the last changes in it.
    Log,
    /// Nothing is known that helps.
    None,
}

impl Action {
    /// What is done about findings of a kind.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::SuperblockBad
            | Kind::SuperblocksDisagree
            | Kind::SuperblockField
            | Kind::BackupRoot
            | Kind::SuperblockTotals
            | Kind::SystemChunkArray
            | Kind::SuperblockBytesUsed => Self::Superblocks,
            Kind::BlockCopyBad | Kind::DataCopyBad | Kind::Parity => Self::Copies,
            Kind::BlockUnreadable
            | Kind::BlockAddress
            | Kind::BlockLevel
            | Kind::BlockGeneration
            | Kind::BlockFsid
            | Kind::BlockOwner
            | Kind::BlockFlags
            | Kind::BlockRefused
            | Kind::BlockStructure
            | Kind::BlockFirstKey
            | Kind::BlockKeyRange
            | Kind::BlockEmpty
            | Kind::TreeIncomplete => Self::Blocks,
            Kind::RootItem
            | Kind::MissingTree
            | Kind::RootReference
            | Kind::RootReferenceDangling
            | Kind::SubvolumeUnnamed => Self::Roots,
            Kind::Chunk
            | Kind::ChunkWithoutDeviceExtent
            | Kind::DeviceExtentWithoutChunk
            | Kind::DeviceExtentOverlap
            | Kind::DeviceExtentRange
            | Kind::DeviceItem
            | Kind::DeviceBytesUsed => Self::Devices,
            Kind::ChunkWithoutBlockGroup
            | Kind::BlockGroupWithoutChunk
            | Kind::BlockGroupFlags
            | Kind::BlockGroupUsed
            | Kind::ExtentItem
            | Kind::ExtentOutsideBlockGroup
            | Kind::ExtentReferenceCount
            | Kind::ExtentMissing
            | Kind::ExtentUnreferenced
            | Kind::BackReferenceMissing
            | Kind::BackReferenceDangling
            | Kind::BackReferenceCount
            | Kind::ExtentMismatch
            | Kind::FreeSpaceTree
            | Kind::FreeSpaceInfo
            | Kind::SpaceCache
            | Kind::ExtentOverlap => Self::Space,
            Kind::InodeItem
            | Kind::InodeMissing
            | Kind::LinkCount
            | Kind::DirectorySize
            | Kind::DirectoryItems
            | Kind::NameHash
            | Kind::EntryName
            | Kind::DuplicateName
            | Kind::EntryWithoutReference
            | Kind::ReferenceWithoutEntry
            | Kind::EntryDangling
            | Kind::EntryType
            | Kind::OrphanMissing
            | Kind::WrongInodeType
            | Kind::FileExtentGap
            | Kind::FileSize
            | Kind::InodeBytes
            | Kind::Symlink
            | Kind::UnexpectedItem
            | Kind::ItemKey
            | Kind::ItemFormat => Self::Files,
            Kind::ChecksumItem
            | Kind::ChecksumOverlap
            | Kind::ChecksumMissing
            | Kind::ChecksumUnexpected
            | Kind::ChecksumDangling => Self::Checksums,
            Kind::DataChecksum => Self::Data,
            Kind::UuidTree => Self::Uuids,
            Kind::QuotaItem | Kind::QuotaCount => Self::Quotas,
            Kind::LogBlock | Kind::LogExtent => Self::Log,
            _ => Self::None,
        }
    }

    /// What is lost by it, if anything is.
    pub fn loses(self) -> Option<&'static str> {
        match self {
            Self::Blocks => Some("files and names in blocks of which no copy can be read"),
            Self::Log => Some("what programs synced since the last commit"),
            Self::Data => Some("what the data was before it changed"),
            Self::Checksums => Some("the proof that data without a checksum is as it was written"),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblocks => "write all superblocks anew from what the trees say",
            Self::Copies => "write a good copy over the bad one",
            Self::Chunks => "put the chunk tree together from what is left",
            Self::Blocks => "write the tree blocks anew with what can be read of them",
            Self::Roots => "make the items of the root tree agree with the trees",
            Self::Devices => "compute device extents and the numbers of devices from the chunks",
            Self::Space => "compute the extent tree, block groups and free space from all trees",
            Self::Files => "make names, inodes and their counts agree",
            Self::Checksums => "compute missing checksums from the data, remove those of nothing",
            Self::Bits => "turn back one bit, where that makes data and checksum match",
            Self::Data => "accept data that matches no checksum as it is",
            Self::Uuids => "make the tree of uuids anew",
            Self::Quotas => "set the counts of quota groups",
            Self::Log => "drop the log, which cannot be replayed",
            Self::None => "nothing",
        })
    }
}

/// What is done about all findings of one kind.
#[derive(Clone, Debug)]
pub struct Step {
    /// The kind.
    pub kind: Kind,
    /// How many findings there are.
    pub count: u64,
    /// What is done.
    pub action: Action,
    /// The files concerned, as far as they are known.
    pub files: Vec<AffectedFile>,
}

impl Step {
    fn of(findings: &KindFindings, action: Action) -> Self {
        let mut files: Vec<AffectedFile> =
            findings.findings.iter().flat_map(|it| it.files.iter().cloned()).collect();
        files.sort_unstable();
        files.dedup();
        let KindFindings { kind, count, .. } = *findings;
        Self { kind, count, action, files }
    }
}

/// The steps for the findings of a check; `action` says what is done about a kind.
pub(super) fn steps(report: &Report, action: impl Fn(Kind) -> Action) -> Vec<Step> {
    report.kinds.iter().map(|findings| Step::of(findings, action(findings.kind))).collect()
}

/// Whether findings say that tree blocks may be lost.
pub(super) fn may_lack_blocks(report: &Report) -> bool {
    let is_of_blocks = |kind: Kind| Action::of(kind) == Action::Blocks || kind == Kind::MissingTree;
    report.kinds.iter().any(|it| is_of_blocks(it.kind))
}
