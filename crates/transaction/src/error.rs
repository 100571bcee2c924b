//! Errors between two committed states.

use std::fmt;
use std::sync::Arc;

use larder_btree::{ChangeError, TreeError};
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CHUNK_TREE, CSUM_TREE, DATA_RELOC_TREE, DEV_TREE, EXTENT_TREE,
    FREE_SPACE_TREE, FS_TREE, QUOTA_TREE, ROOT_TREE, TREE_LOG, UUID_TREE,
};
use larder_format::{FormatError, Key, Logical, Profile};
use larder_volume::{ChunkError, UsedSeparately, WriteError};

use crate::quota::QuotaLimit;
use crate::space::SpaceKind;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the transactional engine.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough space, and no flush state freed enough (`ENOSPC`).
    #[error("No space left on device: {len_bytes} more bytes of {kind} do not fit")]
    NoSpace {
        /// The kind of space that is missing.
        kind: SpaceKind,
        /// Bytes that were asked for.
        len_bytes: u64,
    },
    /// A subvolume would exceed a limit of its quota group, or of one above it (`EDQUOT`).
    #[error(
        "Disk quota exceeded: subvolume {subvolume} would pass the limit of {limit}; \
         delete something or have the limit raised"
    )]
    QuotaExceeded {
        /// Id of the subvolume.
        subvolume: u64,
        /// The limit that it would exceed.
        limit: QuotaLimit,
    },
    /// The devices that would be left have no room for a block group with its profile.
    #[error(
        "No space left on device: the block group at {start} ({kind}, {profile}) fits nowhere else; \
         add a device, or convert to a profile that takes less"
    )]
    NoPlace {
        /// Where the block group begins.
        start: Logical,
        /// What it is for.
        kind: SpaceKind,
        /// The profile that it was to have.
        profile: Profile,
    },
    /// Content that is to move has no checksum, and no device returns it (`EIO`).
    #[error(
        "the content at {logical} has no checksum, and no device returns it: 'larder inspect \
         logical-resolve' names its files; delete or overwrite them, and try again"
    )]
    Unreadable {
        /// The address of the first sector.
        logical: Logical,
    },
    /// A caller ended the work.
    #[error("it was cancelled")]
    Cancelled,
    /// Work on devices excludes other such work.
    #[error("other work on the devices is in progress")]
    OtherWork,
    /// Devices cannot be changed like this.
    #[error("{0}")]
    Devices(String),
    /// A tree block cannot be used.
    #[error(transparent)]
    Tree(Arc<TreeError>),
    /// A tree cannot be changed like this.
    #[error(transparent)]
    Change(Arc<ChangeError>),
    /// An item breaks the rules of the format.
    #[error("tree {tree}, item {key}: {problem}")]
    Item {
        /// The tree.
        tree: u64,
        /// The item's key.
        key: Key,
        /// The rule that it breaks.
        #[source]
        problem: FormatError,
    },
    /// A required item is missing.
    #[error("tree {tree} has no item {key}")]
    MissingItem {
        /// The tree.
        tree: u64,
        /// The item's key.
        key: Key,
    },
    /// An item exists that must not.
    #[error("tree {tree} already has an item {key}")]
    ItemExists {
        /// The tree.
        tree: u64,
        /// The item's key.
        key: Key,
    },
    /// The extent tree contradicts the trees whose references it counts.
    #[error("extent at {logical}: {problem}")]
    Extent {
        /// Start of the extent.
        logical: Logical,
        /// The contradiction.
        problem: String,
    },
    /// A block group contradicts the extents in it.
    #[error("block group at {logical}: {problem}")]
    BlockGroup {
        /// Start of the block group.
        logical: Logical,
        /// The contradiction.
        problem: String,
    },
    /// Chunks without a block group, or block groups without a chunk.
    #[error("there are {groups} block groups for {chunks} chunks")]
    BlockGroupCount {
        /// Block groups.
        groups: usize,
        /// Chunks.
        chunks: usize,
    },
    /// The trees that account for all others contradict each other, so that each round of writing
    /// them makes another one necessary.
    #[error("after {rounds} rounds of writing the extent tree, that still changes it")]
    Unstable {
        /// Rounds.
        rounds: usize,
    },
    /// The system chunks are too many for the superblock, or have too many stripes.
    #[error("the system chunks do not fit the superblock")]
    SystemChunks,
    /// A chunk is invalid.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// Each of two devices has commits that the other has not.
    #[error(transparent)]
    UsedSeparately(#[from] UsedSeparately),
    /// A write or a flush failed.
    #[error(transparent)]
    Write(Arc<WriteError>),
    /// Data of a file could not be written. It is still dirty.
    #[error("subvolume {subvolume}, inode {inode}, offset {offset}: {problem}")]
    DataWrite {
        /// Id of the subvolume.
        subvolume: u64,
        /// The file's inode number.
        inode: u64,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The failure.
        #[source]
        problem: Arc<WriteError>,
    },
    /// An earlier error made the file system read-only (`EROFS`); the last commit is intact.
    #[error("the file system was made read-only: {0}")]
    Aborted(Arc<Error>),
    /// A thread panicked in the middle of a change (`EIO`), which is a defect of this library.
    #[error("a thread panicked in the middle of a change")]
    Panicked,
    /// A structure that commits need is damaged. Nothing was written.
    #[error(
        "{}{problem}; nothing was written, and the rest can still be read (mount -o ro): \
         larder check says what is damaged",
        TreePrefix(problem)
    )]
    Unsound {
        /// What is damaged.
        problem: Box<Error>,
    },
    /// The file system is open for reading, and why it cannot be written.
    #[error("the file system can only be read: {0}")]
    ReadOnly(&'static str),
}

impl Error {
    /// An item of `tree` that breaks the rules of the format.
    pub(crate) fn item(tree: u64, key: Key, problem: impl Into<FormatError>) -> Self {
        Self::Item { tree, key, problem: problem.into() }
    }

    /// An extent whose item or references are invalid.
    pub(crate) fn extent(logical: Logical, problem: impl Into<String>) -> Self {
        Self::Extent { logical, problem: problem.into() }
    }

    /// As an error of opening: if it is one of the file system itself, it says what is left to do.
    pub(crate) fn while_opening(self) -> Self {
        match self {
            Self::Tree(_)
            | Self::Item { .. }
            | Self::MissingItem { .. }
            | Self::ItemExists { .. }
            | Self::Extent { .. }
            | Self::BlockGroup { .. }
            | Self::BlockGroupCount { .. }
            | Self::Unstable { .. }
            | Self::SystemChunks
            | Self::Chunk(_) => Self::Unsound { problem: Box::new(self) },
            _ => self,
        }
    }

    /// An invalid block group.
    pub(crate) fn block_group(logical: Logical, problem: impl Into<String>) -> Self {
        Self::BlockGroup { logical, problem: problem.into() }
    }
}

/// Puts the name of the tree in front of an error that has only its number.
struct TreePrefix<'a>(&'a Error);

impl fmt::Display for TreePrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = match self.0 {
            Error::Tree(error) => error.tree,
            Error::Item { tree, .. }
            | Error::MissingItem { tree, .. }
            | Error::ItemExists { tree, .. } => *tree,
            _ => return Ok(()),
        };
        match tree {
            ROOT_TREE => f.write_str("root tree: "),
            EXTENT_TREE => f.write_str("extent tree: "),
            CHUNK_TREE => f.write_str("chunk tree: "),
            DEV_TREE => f.write_str("device tree: "),
            FS_TREE => f.write_str("top-level subvolume: "),
            CSUM_TREE => f.write_str("checksum tree: "),
            QUOTA_TREE => f.write_str("quota tree: "),
            UUID_TREE => f.write_str("uuid tree: "),
            FREE_SPACE_TREE => f.write_str("free space tree: "),
            BLOCK_GROUP_TREE => f.write_str("block group tree: "),
            TREE_LOG => f.write_str("log tree: "),
            DATA_RELOC_TREE => f.write_str("data relocation tree: "),
            _ => Ok(()),
        }
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Self {
        Self::Tree(Arc::new(error))
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        Self::Write(Arc::new(error))
    }
}
