//! What can go wrong, and what it means to a caller.

use larder_btree::{Problem, TreeError};
use larder_format::{FileOffset, FormatError, Key, Logical};
use larder_transaction::Error as EngineError;
use larder_volume::ReadError;

/// What an error means, whatever caused it. Each names the `errno` that a kernel gives for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is nothing of that name or number (`ENOENT`).
    NotFound,
    /// A directory is needed and it is something else (`ENOTDIR`).
    NotADirectory,
    /// It is a directory and something else is needed (`EISDIR`).
    IsADirectory,
    /// It is not of the type that the call is for (`EINVAL`).
    InvalidInput,
    /// Too many symbolic links on the way (`ELOOP`).
    Loop,
    /// A name is longer than 255 bytes (`ENAMETOOLONG`).
    NameTooLong,
    /// There is no such extended attribute (`ENODATA`).
    NoSuchAttribute,
    /// The position is at or after the end (`ENXIO`).
    NoSuchPosition,
    /// There is something of that name already (`EEXIST`).
    AlreadyExists,
    /// The directory has entries (`ENOTEMPTY`).
    DirectoryNotEmpty,
    /// The inode cannot have more names (`EMLINK`).
    TooManyLinks,
    /// Too many names with one hash (`EOVERFLOW`).
    Overflow,
    /// What is to be changed is read-only (`EROFS`).
    ReadOnly,
    /// What belongs together lies in different subvolumes, or file systems (`EXDEV`).
    CrossSubvolume,
    /// What is to be changed is protected (`EPERM`).
    NotPermitted,
    /// A file would be longer than any can be (`EFBIG`).
    FileTooLarge,
    /// There is no room (`ENOSPC`).
    NoSpace,
    /// A subvolume would pass a limit of its quota group, or of one above it (`EDQUOT`).
    QuotaExceeded,
    /// What is on disk breaks the rules of the format (`EUCLEAN`).
    Corrupt,
    /// No copy could be read or had the right checksum (`EIO`).
    Io,
    /// Somebody else uses a device (`EBUSY`).
    InUse,
    /// Permission to open a device is missing, or a file was to get a default ACL (`EACCES`).
    PermissionDenied,
    /// The file system has features that are not supported, or what was asked for does not exist
    /// (`EOPNOTSUPP`).
    Unsupported,
}

/// An error of a file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no entry of that name, or no inode of that number.
    #[error("No such file or directory")]
    NotFound,
    /// A path leads through, or a call needs, a directory that is none.
    #[error("Not a directory")]
    NotADirectory,
    /// A call for files was given a directory.
    #[error("Is a directory")]
    IsADirectory,
    /// A call for regular files was given something else.
    #[error("not a regular file")]
    NotAFile,
    /// A call for symbolic links was given something else.
    #[error("not a symbolic link")]
    NotASymlink,
    /// A call for subvolumes was given something else.
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
    /// There is something of that name already.
    #[error("File exists")]
    AlreadyExists,
    /// A directory that has entries cannot be removed.
    #[error("Directory not empty")]
    DirectoryNotEmpty,
    /// An inode has at most 65,535 names, and fewer where extended references are not allowed.
    #[error("Too many links")]
    TooManyLinks,
    /// The item that names of one hash share is full.
    #[error("too many names with one hash")]
    NameHashFull,
    /// The file system is open for reading.
    #[error("Read-only file system: it is open for reading")]
    NotWritable,
    /// The subvolume is read-only.
    #[error("Read-only file system: the subvolume is read-only")]
    ReadOnlySubvolume,
    /// The subvolume can change, and what was asked for needs one that cannot.
    #[error("subvolume {0} is not read-only: a read-only snapshot of it would do")]
    NotReadOnly(u64),
    /// A name and what it is to lead to lie in different subvolumes.
    #[error("Invalid cross-device link: not in the same subvolume")]
    CrossSubvolume,
    /// Files lie in different file systems.
    #[error("Invalid cross-device link: not in the same file system")]
    CrossFilesystem,
    /// What is to be changed is protected by a flag, or is the root of a subvolume.
    #[error("Operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// A call got what makes no sense.
    #[error("Invalid argument: {0}")]
    Invalid(&'static str),
    /// A file would be longer than any can be.
    #[error("File too large")]
    FileTooLarge,
    /// An extended attribute does not fit where all of its hash are kept.
    #[error("extended attribute is too large")]
    AttributeTooLarge,
    /// All ids of subvolumes, or all numbers of inodes of a subvolume, were given out.
    #[error("no number is left for what is to be made")]
    NumbersExhausted,
    /// The name of an extended attribute has a namespace that there is not.
    #[error("no such namespace of extended attributes")]
    NoSuchNamespace,
    /// Only directories pass an ACL on.
    #[error("only a directory has a default ACL")]
    NoDefaultAcl,
    /// The ACL has a version that is not known.
    #[error("the ACL has an unknown version")]
    UnknownAclVersion,
    /// Flags that do not exist or cannot be changed.
    #[error("flags that cannot be changed")]
    UnknownFlags,
    /// A symbolic link has no permissions of its own to change (`EOPNOTSUPP`).
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
    /// An item cannot be what it says.
    #[error("tree {tree}, item {key}: {problem}")]
    Item {
        /// The tree.
        tree: u64,
        /// The item's key.
        key: Key,
        /// What is wrong.
        #[source]
        problem: FormatError,
    },
    /// An item that must be there is not.
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
        /// Where in the file the extent or part that fails begins.
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
    /// The checksum tree has none for data that should have some.
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

    /// An item of `tree` that cannot be.
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

/// A block of which no copy has its own checksum counts as a device's failure, as in the kernel.
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

/// What this crate's calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
