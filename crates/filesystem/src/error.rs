//! Errors, and what they mean to a caller.

use larder_btree::{Problem, TreeError};
use larder_format::{FileOffset, FormatError, Key, Logical};
use larder_transaction::Error as EngineError;
use larder_volume::ReadError;

/// What an error means, whatever caused it. Each variant names the `errno` that a kernel returns
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such name or number (`ENOENT`).
    NotFound,
    /// A directory is needed, and this is none (`ENOTDIR`).
    NotADirectory,
    /// This is a directory, and something else is needed (`EISDIR`).
    IsADirectory,
    /// It is not of the type that the call needs (`EINVAL`).
    InvalidInput,
    /// Too many symbolic links in a path (`ELOOP`).
    Loop,
    /// A name is longer than 255 bytes (`ENAMETOOLONG`).
    NameTooLong,
    /// There is no such extended attribute (`ENODATA`).
    NoSuchAttribute,
    /// The position is at or after the end (`ENXIO`).
    NoSuchPosition,
    /// The name exists already (`EEXIST`).
    AlreadyExists,
    /// The directory has entries (`ENOTEMPTY`).
    DirectoryNotEmpty,
    /// The inode cannot have more names (`EMLINK`).
    TooManyLinks,
    /// Too many names with one hash (`EOVERFLOW`).
    Overflow,
    /// The file system or subvolume is read-only (`EROFS`).
    ReadOnly,
    /// The operands lie in different subvolumes, or file systems (`EXDEV`).
    CrossSubvolume,
    /// The inode is protected (`EPERM`).
    NotPermitted,
    /// A file would be longer than any can be (`EFBIG`).
    FileTooLarge,
    /// There is no space (`ENOSPC`).
    NoSpace,
    /// A subvolume would exceed a limit of its quota group, or of one above it (`EDQUOT`).
    QuotaExceeded,
    /// The data on disk breaks the rules of the format (`EUCLEAN`).
    Corrupt,
    /// No copy could be read or had the right checksum (`EIO`).
    Io,
    /// Another program uses a device (`EBUSY`).
    InUse,
    /// No permission to open a device, or a default ACL for a file (`EACCES`).
    PermissionDenied,
    /// The file system has unsupported features, or the request is unknown (`EOPNOTSUPP`).
    Unsupported,
}

/// An error of a file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound | Self::NoSuchSubvolume(_) => ErrorKind::NotFound,
            Self::NotADirectory => ErrorKind::NotADirectory,
            Self::IsADirectory => ErrorKind::IsADirectory,
            Self::NotAFile | Self::NotASymlink | Self::NotASubvolume | Self::Invalid(_) => {
                ErrorKind::InvalidInput
            }
            Self::TooManySymlinks => ErrorKind::Loop,
            Self::NameTooLong => ErrorKind::NameTooLong,
            Self::NoSuchAttribute => ErrorKind::NoSuchAttribute,
            Self::NoSuchPosition => ErrorKind::NoSuchPosition,
            Self::AlreadyExists => ErrorKind::AlreadyExists,
            Self::DirectoryNotEmpty => ErrorKind::DirectoryNotEmpty,
            Self::TooManyLinks => ErrorKind::TooManyLinks,
            Self::NameHashFull => ErrorKind::Overflow,
            Self::NotWritable | Self::ReadOnlySubvolume => ErrorKind::ReadOnly,
            Self::CrossSubvolume | Self::CrossFilesystem => ErrorKind::CrossSubvolume,
            Self::NotPermitted(_) | Self::NotReadOnly(_) => ErrorKind::NotPermitted,
            Self::FileTooLarge => ErrorKind::FileTooLarge,
            Self::AttributeTooLarge | Self::NumbersExhausted => ErrorKind::NoSpace,
            Self::NoDefaultAcl => ErrorKind::PermissionDenied,
            Self::NoSuchNamespace
            | Self::UnknownAclVersion
            | Self::UnknownFlags
            | Self::NoPermissions => ErrorKind::Unsupported,
            Self::Engine(error) => kind_of_engine(error),
            Self::Tree(error) => kind_of_problem(&error.problem),
            Self::Data { problem, .. } => problem.kind(),
            Self::Item { .. } | Self::MissingItem { .. } => ErrorKind::Corrupt,
        }
    }

    /// An item of `tree` that breaks the rules of the format.
    pub(crate) fn item(tree: u64, key: Key, problem: impl Into<FormatError>) -> Self {
        Self::Item { tree, key, problem: problem.into() }
    }
}

impl DataError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read(_) | Self::MissingChecksum(_) => ErrorKind::Io,
            Self::Checksums(error) => error.kind(),
            Self::Compression(_) => ErrorKind::Corrupt,
        }
    }
}

fn kind_of_engine(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::NoSpace { .. } => ErrorKind::NoSpace,
        EngineError::QuotaExceeded { .. } => ErrorKind::QuotaExceeded,
        EngineError::Aborted(_) | EngineError::ReadOnly(_) => ErrorKind::ReadOnly,
        EngineError::Tree(error) => kind_of_problem(&error.problem),
        EngineError::Unsound { problem } => kind_of_engine(problem),
        EngineError::Write(_) | EngineError::Panicked => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

/// A block without any copy that has its own checksum counts as a device's failure, as in the
/// kernel.
fn kind_of_problem(problem: &Problem) -> ErrorKind {
    match problem {
        Problem::Read(_) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Self {
        Self::Tree(Box::new(error))
    }
}

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
