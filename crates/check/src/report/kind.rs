//! The kinds of finding: a stable name, the severity, and a possible repair.

use std::fmt;

use serde::{Serialize, Serializer};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing is lost, but the format's rules are broken or redundancy is reduced.
    Warning,
    /// Data is lost, or will be when the file system is written.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// The repair that a finding needs. The crate `rescue` carries it out, if nothing is lost by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// Nothing helps: the data is lost.
    Impossible,
    /// Copying a good copy over the bad one.
    FromCopy,
    /// Computing it anew from other, sound structures.
    Recompute,
    /// Dropping the damaged or dangling item, which may lose its data.
    Drop,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Impossible => "none",
            Self::FromCopy => "from a good copy",
            Self::Recompute => "by recomputing",
            Self::Drop => "by dropping it",
        })
    }
}

macro_rules! kinds {
    ($($name:ident $id:literal $severity:ident $repair:ident $title:literal;)*) => {
        /// The subject of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $(#[doc = $title] $name,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name that scripts may rely on.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// The severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// The possible repair.
            pub const fn repair(self) -> Repair {
                match self { $(Self::$name => Repair::$repair,)* }
            }

            /// The meaning, in a sentence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

kinds! {
    // Superblocks and devices.
    SuperblockBad "superblock-bad" Error FromCopy "A copy of the superblock is damaged.";
    SuperblocksDisagree "superblocks-disagree" Error FromCopy "Copies of the superblock differ.";
    SuperblockField "superblock-field" Error Recompute "A field of the superblock is invalid.";
    SuperblockTotals "superblock-totals" Error Recompute "Sizes or numbers of devices in the superblock are wrong.";
    SuperblockBytesUsed "superblock-bytes-used" Error Recompute "The superblock's used bytes are not those of the block groups.";
    SystemChunkArray "system-chunk-array" Error Recompute "The superblock's system chunks are not those of the chunk tree.";
    BackupRoot "backup-root" Warning Recompute "A backup root in the superblock is invalid.";
    DeviceOutOfDate "device-out-of-date" Error FromCopy "A device missed commits.";
    MissingDevice "missing-device" Warning Impossible "A device is missing.";

    // Tree blocks.
    BlockCopyBad "tree-block-copy-bad" Error FromCopy "One copy of a tree block is damaged, another is good.";
    BlockUnreadable "tree-block-unreadable" Error Impossible "No copy of a tree block has the right checksum.";
    BlockAddress "tree-block-address" Error Impossible "A tree block or pointer has an invalid address.";
    BlockFsid "tree-block-fsid" Error Recompute "A tree block belongs to another file system.";
    BlockGeneration "tree-block-generation" Error Recompute "A tree block has another generation than its pointer.";
    BlockLevel "tree-block-level" Error Impossible "A tree block has another level than its pointer.";
    BlockOwner "tree-block-owner" Error Recompute "A tree block belongs to another tree.";
    BlockFlags "tree-block-flags" Error Recompute "A tree block's header flags are invalid.";
    BlockRefused "tree-block-refused" Error Drop "A tree block holds an invalid item: the kernel refuses the whole block.";
    BlockStructure "tree-block-structure" Error Impossible "Keys of a tree block are out of order, or its items out of bounds.";
    BlockFirstKey "tree-block-first-key" Error Recompute "A tree block starts with another key than its parent says.";
    BlockKeyRange "tree-block-key-range" Error Impossible "A tree block has keys beyond the range that its parent gives it.";
    BlockEmpty "tree-block-empty" Error Drop "A leaf is empty though it is not a root.";
    TreeIncomplete "tree-incomplete" Error Impossible "Parts of a tree could not be read: relations of its items were not checked.";
    RootItem "root-item" Error Recompute "A root item is invalid.";
    MissingTree "missing-tree" Error Recompute "A tree that must exist does not.";

    // Items.
    UnexpectedItem "unexpected-item" Error Drop "An item of a type that does not belong in its tree.";
    ItemKey "item-key" Error Recompute "An item has an invalid key.";
    ItemFormat "item-format" Error Drop "An item has an invalid size or content.";

    // Chunks and devices.
    Chunk "chunk" Error Impossible "A chunk item is invalid.";
    ChunkWithoutDeviceExtent "chunk-without-device-extent" Error Recompute "A chunk's stripe has no device extent.";
    DeviceExtentWithoutChunk "device-extent-without-chunk" Error Recompute "A device extent belongs to no chunk.";
    DeviceExtentOverlap "device-extent-overlap" Error Impossible "Two device extents overlap.";
    DeviceExtentRange "device-extent-range" Error Impossible "A device extent lies outside of its device.";
    DeviceItem "device-item" Error Recompute "A device item is wrong or missing.";
    DeviceBytesUsed "device-bytes-used" Error Recompute "A device's used bytes are not those of its extents.";
    ChunkWithoutBlockGroup "chunk-without-block-group" Error Recompute "A chunk has no block group.";
    BlockGroupWithoutChunk "block-group-without-chunk" Error Drop "A block group has no chunk.";
    BlockGroupFlags "block-group-flags" Error Recompute "A block group's type is not its chunk's.";
    BlockGroupUsed "block-group-used" Error Recompute "A block group's used bytes are not those of its extents.";

    // Extents.
    ExtentItem "extent-item" Error Recompute "An extent item is invalid.";
    ExtentOverlap "extent-overlap" Error Drop "Two extents overlap.";
    ExtentOutsideBlockGroup "extent-outside-block-group" Error Drop "An extent does not lie in a block group of its kind.";
    ExtentOnSuperblock "extent-on-superblock" Error Impossible "An extent lies where a superblock copy belongs.";
    ExtentReferenceCount "extent-reference-count" Error Recompute "An extent's reference count is not the sum of its references.";
    ExtentMissing "extent-missing" Error Recompute "An extent is in use but not in the extent tree.";
    ExtentUnreferenced "extent-unreferenced" Error Drop "An extent is allocated but nothing refers to it.";
    BackReferenceMissing "back-reference-missing" Error Recompute "A reference to an extent is not in the extent tree.";
    BackReferenceDangling "back-reference-dangling" Error Drop "The extent tree has a reference that no tree makes.";
    BackReferenceCount "back-reference-count" Error Recompute "The extent tree has a wrong count for a reference.";
    ExtentMismatch "extent-mismatch" Error Recompute "An extent has another level, generation, length or kind than its reference says.";

    // Free space.
    FreeSpaceTree "free-space-tree" Error Recompute "The free space tree is not the complement of the extent tree.";
    FreeSpaceInfo "free-space-info" Error Recompute "A block group's entry in the free space tree is wrong or missing.";
    SpaceCache "space-cache" Warning Recompute "The v1 space cache is not the complement of the extent tree.";

    // Files.
    InodeItem "inode-item" Error Recompute "An inode item is invalid.";
    InodeMissing "inode-missing" Error Recompute "Items belong to an inode that has no inode item.";
    LinkCount "link-count" Error Recompute "An inode's link count is not its number of names.";
    DirectorySize "directory-size" Error Recompute "A directory's size is not twice the length of its names.";
    DirectoryItems "directory-items" Error Recompute "A directory's items by hash and by index differ.";
    NameHash "name-hash" Error Recompute "A name is stored under a wrong hash.";
    EntryName "entry-name" Error Recompute "A name is invalid.";
    DuplicateName "duplicate-name" Error Drop "A directory has a name twice.";
    EntryWithoutReference "entry-without-reference" Error Recompute "A directory entry has no matching inode reference.";
    ReferenceWithoutEntry "reference-without-entry" Error Recompute "An inode reference has no matching directory entry.";
    EntryDangling "entry-dangling" Error Drop "A directory entry points to nothing.";
    EntryType "entry-type" Error Recompute "A directory entry has another file type than its inode.";
    OrphanMissing "orphan-missing" Error Recompute "An inode or subvolume without names is not listed for deletion.";
    WrongInodeType "wrong-inode-type" Error Drop "An inode has items that its type does not allow.";
    FileExtent "file-extent" Error Drop "A file extent item is invalid.";
    FileExtentOverlap "file-extent-overlap" Error Drop "Two file extents overlap.";
    FileExtentGap "file-extent-gap" Error Recompute "A range of a file has no extent, not even a hole.";
    FileSize "file-size" Error Recompute "A file has data beyond its size.";
    InlineExtent "inline-extent" Error Drop "An inline extent is not the file's only extent, or is too long.";
    CompressedData "compressed-data" Error Impossible "Compressed data cannot be decompressed.";
    InodeBytes "inode-bytes" Error Recompute "An inode's nbytes is not the sum of its extents.";
    Symlink "symlink" Error Recompute "A symbolic link has no target, or one of another size.";

    // Checksums.
    ChecksumItem "checksum-item" Error Recompute "A checksum item is invalid.";
    ChecksumOverlap "checksum-overlap" Error Drop "Checksum items overlap.";
    ChecksumMissing "checksum-missing" Error Recompute "Data of a file with checksums, or compressed data, has none.";
    ChecksumUnexpected "checksum-unexpected" Warning Drop "Data of a file without checksums has some.";
    ChecksumDangling "checksum-dangling" Error Drop "Checksums exist for space that is not allocated as data.";
    DataChecksum "data-checksum" Error Impossible "Data does not match its checksum in any copy.";
    DataCopyBad "data-copy-bad" Error FromCopy "One copy of data does not match its checksum, another copy does.";
    Parity "parity" Warning Recompute "Parity does not match the data that it protects.";

    // Subvolumes.
    RootReference "root-reference" Error Recompute "A subvolume's references and back references differ.";
    RootReferenceDangling "root-reference-dangling" Error Drop "A subvolume's name is not in the directory of its reference.";
    SubvolumeUnnamed "subvolume-unnamed" Error Recompute "A subvolume that is not being deleted has no name.";
    UuidTree "uuid-tree" Warning Recompute "The uuid tree does not match the uuids of subvolumes.";

    // Quotas.
    QuotaItem "quota-item" Error Recompute "A quota item is invalid or missing.";
    QuotaCount "quota-count" Error Recompute "A quota group's counts are wrong.";

    // Log.
    LogBlock "log-block" Error Drop "A block of a log tree lies in an allocated extent.";
    LogExtent "log-extent" Error Drop "A log refers to data that a replay cannot allocate.";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
