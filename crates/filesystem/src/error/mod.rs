//! Errors.

mod kind;

use std::fmt;
use std::io;
use std::path::Path;

use larder_btree::TreeError;
use larder_device::DeviceError;
use larder_format::{FileOffset, FormatError, Key, Logical};
use larder_platform::errno::{self, in_words};
use larder_transaction::Error as EngineError;
use larder_volume::{OpenError, ReadError};

pub use kind::ErrorKind;

/// An error: a [kind](Self::kind) for programs, and a text for people that names the path, device
/// or item.
///
/// The text is complete; the sources have the same information in parts, as values.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call with a path failed.
    #[error(transparent)]
    About(Box<ErrorAbout>),
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A mounted file system gave this answer.
    #[error("{}", in_words(.0))]
    Mounted(#[source] io::Error),
    /// A kept state ended before its reader.
    #[error("{0}")]
    StateEnded(String),
    /// There is no entry of that name, or no inode of that number.
    #[error("No such file or directory")]
    NotFound,
    /// A path leads through something that is no directory, or a call needs a directory.
    #[error("Not a directory")]
    NotADirectory,
    /// A call for files got a directory.
    #[error("Is a directory")]
    IsADirectory,
    /// A call for regular files got something else.
    #[error("not a regular file")]
    NotAFile,
    /// A call for symbolic links got something else.
    #[error("not a symbolic link")]
    NotASymlink,
    /// A call for subvolumes got something else.
    #[error("not a subvolume")]
    NotASubvolume,
    /// A path leads through too many symbolic links.
    #[error("Too many levels of symbolic links")]
    TooManySymlinks,
    /// A name is longer than 255 bytes.
    #[error("File name too long: at most 255 bytes")]
    NameTooLong,
    /// There is no extended attribute of that name.
    #[error("no such extended attribute")]
    NoSuchAttribute,
    /// A search for data or a hole began at or after the end of the file, or there is no more data.
    #[error("no such position in the file")]
    NoSuchPosition,
    /// The name exists already.
    #[error("File exists")]
    AlreadyExists,
    /// A directory that has entries cannot be removed.
    #[error("Directory not empty")]
    DirectoryNotEmpty,
    /// An inode has at most 65,535 names, and fewer where extended references are not allowed.
    #[error("Too many links")]
    TooManyLinks,
    /// The item that all names of one hash share is full.
    #[error("too many names with one hash")]
    NameHashFull,
    /// The file system is open for reading.
    #[error("Read-only file system: it is open for reading")]
    NotWritable,
    /// The subvolume is read-only.
    #[error("Read-only file system: the subvolume is read-only")]
    ReadOnlySubvolume,
    /// The subvolume is not read-only, and the call needs one that is.
    #[error("subvolume {0} is not read-only: use a read-only snapshot of it")]
    NotReadOnly(u64),
    /// A name and its inode lie in different subvolumes.
    #[error("Invalid cross-device link: not in the same subvolume")]
    CrossSubvolume,
    /// Files lie in different file systems.
    #[error("Invalid cross-device link: not in the same file system")]
    CrossFilesystem,
    /// The inode is protected by a flag, or is the root of a subvolume.
    #[error("Operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// A call got invalid arguments.
    #[error("Invalid argument: {0}")]
    Invalid(&'static str),
    /// A file would be longer than any can be.
    #[error("File too large")]
    FileTooLarge,
    /// An extended attribute does not fit into the item for its hash.
    #[error("extended attribute is too large")]
    AttributeTooLarge,
    /// All ids of subvolumes, or all inode numbers of a subvolume, are used up.
    #[error("all ids or inode numbers are used up")]
    NumbersExhausted,
    /// The name of an extended attribute has an unknown namespace.
    #[error("no such namespace of extended attributes")]
    NoSuchNamespace,
    /// Only directories have a default ACL.
    #[error("only a directory has a default ACL")]
    NoDefaultAcl,
    /// The ACL has an unknown version.
    #[error("the ACL has an unknown version")]
    UnknownAclVersion,
    /// Flags that do not exist or cannot be changed.
    #[error("flags that cannot be changed")]
    UnknownFlags,
    /// The permissions of a symbolic link cannot change (`EOPNOTSUPP`).
    #[error("a symbolic link has no permissions of its own")]
    NoPermissions,
    /// The transactional engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no subvolume with this id.
    #[error("there is no subvolume with id {0}")]
    NoSuchSubvolume(u64),
    /// A tree block cannot be used.
    #[error(transparent)]
    Tree(Box<TreeError>),
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
    /// The caller stopped it.
    #[error("Interrupted")]
    Interrupted,
    /// A job that runs excludes another one.
    #[error(transparent)]
    Excluded(#[from] larder_jobs::Excluded),
    /// A balance has not ended, so that other work on devices cannot begin (`EBUSY`).
    #[error(
        "a balance was begun and has not ended: 'larder balance resume' goes on with it, and \
         'larder balance cancel' ends it"
    )]
    PausedBalance,
    /// Subvolumes share their trees in more ways than fit into memory.
    #[error("the subvolumes share their trees in too many ways")]
    TooEntangled,
    /// A temporary file cannot be used.
    #[error("temporary file: {}", in_words(.0))]
    Temporary(#[source] io::Error),
    /// Data of a file cannot be read.
    #[error("subvolume {subvolume}, inode {inode}, offset {offset}: {problem}")]
    Data {
        /// Id of the subvolume.
        subvolume: u64,
        /// The file's inode number.
        inode: u64,
        /// The offset in the file of the extent or part that fails.
        offset: FileOffset,
        /// What is wrong.
        #[source]
        problem: Box<DataError>,
    },
}

/// An error and the path of the call that failed.
#[derive(Debug)]
pub struct ErrorAbout {
    about: String,
    problem: Error,
}

/// Why data of a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No copy is good.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The checksum tree has no checksum for data that should have one.
    #[error("there is no checksum for data at {0}")]
    MissingChecksum(Logical),
    /// The checksums cannot be read.
    #[error("its checksums: {0}")]
    Checksums(#[source] Error),
    /// It does not decompress.
    #[error(transparent)]
    Compression(#[from] larder_format::compression::CompressionError),
}

impl Error {
    /// The error without the path that it is about, for a caller that names the path itself.
    pub fn problem(&self) -> &Self {
        match self {
            Self::About(error) => &error.problem,
            error => error,
        }
    }

    /// The same error about `path`.
    #[doc(hidden)]
    #[must_use]
    pub fn about(self, path: &Path) -> Self {
        let problem = match self {
            Self::About(error) => error.problem,
            error => error,
        };
        Self::About(Box::new(ErrorAbout { about: path.display().to_string(), problem }))
    }

    /// An item of `tree` that breaks the rules of the format.
    #[doc(hidden)]
    pub fn item(tree: u64, key: Key, problem: impl Into<FormatError>) -> Self {
        Self::Item { tree, key, problem: problem.into() }
    }
}

impl fmt::Display for ErrorAbout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about, self.problem)
    }
}

impl std::error::Error for ErrorAbout {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Self {
        Self::Tree(Box::new(error))
    }
}

impl From<Error> for io::Error {
    /// The system's kind of error, with the text of this one.
    fn from(error: Error) -> Self {
        Self::new(errno::kind(error.errno()), error)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

/// The result of this library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
