//! What an error means, whatever caused it.

use std::io;

use larder_btree::Problem;
use larder_device::DeviceError;
use larder_platform::errno;
use larder_transaction::Error as EngineError;
use larder_volume::{OpenError, ScanError, SuperblockProblem};

use super::{DataError, Error};

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
    /// A state that was kept for a reader ended before (`ESTALE`).
    Stale,
    /// The caller stopped it (`EINTR`).
    Interrupted,
    /// The file system has unsupported features, or the request is unknown (`EOPNOTSUPP`).
    Unsupported,
}

impl ErrorKind {
    fn errno(self) -> i32 {
        match self {
            Self::NotFound => errno::ENOENT,
            Self::NotADirectory => errno::ENOTDIR,
            Self::IsADirectory => errno::EISDIR,
            Self::InvalidInput => errno::EINVAL,
            Self::Loop => errno::ELOOP,
            Self::NameTooLong => errno::ENAMETOOLONG,
            Self::NoSuchAttribute => errno::ENODATA,
            Self::NoSuchPosition => errno::ENXIO,
            Self::AlreadyExists => errno::EEXIST,
            Self::DirectoryNotEmpty => errno::ENOTEMPTY,
            Self::TooManyLinks => errno::EMLINK,
            Self::Overflow => errno::EOVERFLOW,
            Self::ReadOnly => errno::EROFS,
            Self::CrossSubvolume => errno::EXDEV,
            Self::NotPermitted => errno::EPERM,
            Self::FileTooLarge => errno::EFBIG,
            Self::NoSpace => errno::ENOSPC,
            Self::QuotaExceeded => errno::EDQUOT,
            Self::Corrupt => errno::EUCLEAN,
            Self::InUse => errno::EBUSY,
            Self::PermissionDenied => errno::EACCES,
            Self::Unsupported => errno::EOPNOTSUPP,
            Self::Stale => errno::ESTALE,
            Self::Interrupted => errno::EINTR,
            Self::Io => errno::EIO,
        }
    }
}

impl Error {
    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::About(error) => error.problem.kind(),
            Self::Open(error) => kind_of_opening(error),
            Self::Device(error) => kind_of_device(error),
            Self::Mounted(error) | Self::Temporary(error) => kind_of_system(error),
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
            Self::NameHashFull | Self::TooEntangled => ErrorKind::Overflow,
            Self::StateEnded(_) => ErrorKind::Stale,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Excluded(_) | Self::PausedBalance => ErrorKind::InUse,
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

    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        self.kind().errno()
    }

    /// Whether something on a device is wrong or unreadable, and a check is due.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::About(error) => error.problem.is_damage(),
            Self::Data { .. } | Self::Tree(_) => true,
            error => error.kind() == ErrorKind::Corrupt,
        }
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
        EngineError::NoSpace { .. } | EngineError::NoPlace { .. } => ErrorKind::NoSpace,
        EngineError::Devices(_) => ErrorKind::InvalidInput,
        EngineError::OtherWork => ErrorKind::InUse,
        EngineError::Cancelled => ErrorKind::Interrupted,
        EngineError::QuotaExceeded { .. } => ErrorKind::QuotaExceeded,
        EngineError::Aborted(_) | EngineError::ReadOnly(_) => ErrorKind::ReadOnly,
        EngineError::Tree(error) => kind_of_problem(&error.problem),
        EngineError::Unsound { problem } => kind_of_engine(problem),
        EngineError::Write(_)
        | EngineError::DataWrite { .. }
        | EngineError::Unreadable { .. }
        | EngineError::Panicked => ErrorKind::Io,
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

fn kind_of_opening(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NoDevices => ErrorKind::InvalidInput,
        OpenError::Feature(_) | OpenError::State { .. } => ErrorKind::Unsupported,
        OpenError::OnlyReading { .. } => ErrorKind::ReadOnly,
        OpenError::Scan(error) => kind_of_scan(error),
        OpenError::MissingDevices { .. } | OpenError::NotEnoughDevices { .. } => {
            ErrorKind::NotFound
        }
        OpenError::DuplicateDevice { .. } | OpenError::ForeignDevice { .. } => {
            ErrorKind::InvalidInput
        }
        OpenError::NoSuchState { .. } => ErrorKind::NotFound,
        OpenError::ChunkTree(_) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

fn kind_of_scan(error: &ScanError) -> ErrorKind {
    let failed = |problem| matches!(problem, Err(&SuperblockProblem::Device(_)));
    if error.copies.iter().any(|copy| failed(copy.state.as_ref())) {
        ErrorKind::Io
    } else {
        ErrorKind::Corrupt
    }
}

fn kind_of_device(error: &DeviceError) -> ErrorKind {
    match error {
        DeviceError::InUse { .. } => ErrorKind::InUse,
        DeviceError::Open { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Io,
        },
        _ => ErrorKind::Io,
    }
}

fn kind_of_system(error: &io::Error) -> ErrorKind {
    match errno::of(error) {
        Some(errno::ENOENT) => ErrorKind::NotFound,
        Some(errno::EINVAL) => ErrorKind::InvalidInput,
        Some(errno::EPERM) => ErrorKind::NotPermitted,
        Some(errno::EACCES) => ErrorKind::PermissionDenied,
        Some(errno::EROFS) => ErrorKind::ReadOnly,
        Some(errno::EDQUOT) => ErrorKind::QuotaExceeded,
        Some(errno::ENOSPC) => ErrorKind::NoSpace,
        Some(errno::EEXIST) => ErrorKind::AlreadyExists,
        Some(errno::EBUSY) => ErrorKind::InUse,
        Some(errno::ENOTEMPTY) => ErrorKind::DirectoryNotEmpty,
        _ if error.kind() == io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_mounted_file_system_keeps_its_number() {
        for number in [
            errno::ENOENT,
            errno::EINVAL,
            errno::EPERM,
            errno::EACCES,
            errno::EROFS,
            errno::EDQUOT,
            errno::ENOSPC,
            errno::EEXIST,
            errno::EBUSY,
            errno::ENOTEMPTY,
            errno::EIO,
        ] {
            let error = Error::Mounted(io::Error::from_raw_os_error(number));
            assert_eq!(error.errno(), number);
        }
    }
}
