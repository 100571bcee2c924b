//! The state that all parts of a check share.

use std::sync::{Arc, OnceLock};

use larder_format::feature::IncompatFlags;
use larder_format::superblock::{SUPER_FLAG_METADUMP, SUPER_FLAG_METADUMP_V2};
use larder_format::{ChecksumType, Key, Logical, Superblock, tree_check};
use larder_volume::{ChunkMap, Volume};

use crate::behind::OneCommitBehind;
use crate::evidence::Evidence;
use crate::files::Orphans;
use crate::fingerprint::Fingerprints;
use crate::progress::{Observer, Tracker};
use crate::report::{Location, Sink};

/// Bytes of tree blocks that are read at once: four of the largest.
const BATCH_BYTES: usize = 256 << 10;

/// The volume, the facts known from the start, and the sink for findings.
pub(crate) struct Context<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) superblock: Arc<Superblock>,
    pub(crate) chunks: Arc<ChunkMap>,
    pub(crate) sink: Sink,
    pub(crate) fingerprints: Fingerprints,
    pub(crate) threads: usize,
    pub(crate) csum_type: ChecksumType,
    pub(crate) tree_check: tree_check::Context,
    pub(crate) nodesize: usize,
    pub(crate) sectorsize: u64,
    /// The ids that headers of tree blocks may carry: the file system's, and those of seeds.
    pub(crate) block_fsids: Vec<[u8; 16]>,
    pub(crate) progress: Tracker<'a>,
    pub(crate) one_commit_behind: OneCommitBehind,
    /// Known once all trees are.
    pub(crate) orphans: OnceLock<Orphans>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        volume: &'a Volume,
        sink: Sink,
        threads: usize,
        progress: Option<Observer<'a>>,
    ) -> Self {
        let superblock = volume.superblock();
        let mut block_fsids = vec![superblock.metadata_uuid().into_bytes()];
        let geometry = volume.geometry();
        let seeds = geometry.devices().iter().filter(|device| device.is_seed());
        block_fsids.extend(seeds.map(|seed| seed.dev_item().fsid));
        Self {
            volume,
            chunks: geometry.chunks().clone(),
            sink,
            fingerprints: Fingerprints::new(),
            threads,
            csum_type: superblock.checksum_type(),
            tree_check: tree_check::Context::new(&superblock),
            nodesize: superblock.nodesize.get() as usize,
            sectorsize: u64::from(superblock.sectorsize.get()),
            block_fsids,
            progress: Tracker::new(progress),
            one_commit_behind: OneCommitBehind::default(),
            orphans: OnceLock::new(),
            superblock,
        }
    }

    /// Adds a finding.
    pub(crate) fn find(&self, location: Location, evidence: impl Into<Evidence>) {
        self.sink.add(location, evidence.into());
    }

    /// Adds a finding about an item.
    pub(crate) fn find_item(&self, tree: u64, block: u64, key: Key, evidence: impl Into<Evidence>) {
        self.find(Location::tree(tree).at(block).key(key), evidence);
    }

    /// How many tree blocks are read at once. A batch and its copy stay in a processor's own cache,
    /// so that checksums cost no memory traffic.
    pub(crate) fn batch_blocks(&self) -> usize {
        BATCH_BYTES / self.nodesize
    }

    pub(crate) fn generation(&self) -> u64 {
        self.superblock.generation.get()
    }

    pub(crate) fn has(&self, flags: IncompatFlags) -> bool {
        self.superblock.has_incompat(flags)
    }

    pub(crate) fn is_aligned(&self, value: u64) -> bool {
        value.is_multiple_of(self.sectorsize)
    }

    /// Whether an inode is listed for deletion.
    pub(crate) fn is_orphan(&self, tree: u64, ino: u64) -> bool {
        self.orphans.get().is_some_and(|orphans| orphans.contains(tree, ino))
    }

    /// Whether it was restored from a dump of its metadata: data may be zeros.
    pub(crate) fn is_metadata_dump(&self) -> bool {
        self.superblock.flags.get() & (SUPER_FLAG_METADUMP | SUPER_FLAG_METADUMP_V2) != 0
    }

    /// Whether one chunk holds the whole of a range.
    pub(crate) fn is_mapped(&self, logical: u64, len_bytes: u64) -> bool {
        self.chunks.get(Logical(logical)).is_some_and(|chunk| len_bytes <= chunk.end().0 - logical)
    }
}
