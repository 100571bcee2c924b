//! Windows: the system's errors have numbers of their own, and those of the C library only name
//! what they mean.

use std::io::{self, ErrorKind};

use libc::{
    EACCES, EBUSY, EEXIST, EFBIG, EINTR, EINVAL, EISDIR, EMLINK, ENAMETOOLONG, ENOENT, ENOSPC,
    ENOTDIR, ENOTEMPTY, EOPNOTSUPP, EROFS, EXDEV,
};
pub use libc::{EIO as EUCLEAN, ENODATA};

/// `WSAEDQUOT`: the C library has none.
pub const EDQUOT: i32 = 10069;

const KINDS: [(i32, ErrorKind); 16] = [
    (EACCES, ErrorKind::PermissionDenied),
    (EBUSY, ErrorKind::ResourceBusy),
    (EEXIST, ErrorKind::AlreadyExists),
    (EFBIG, ErrorKind::FileTooLarge),
    (EINTR, ErrorKind::Interrupted),
    (EINVAL, ErrorKind::InvalidInput),
    (EISDIR, ErrorKind::IsADirectory),
    (EMLINK, ErrorKind::TooManyLinks),
    (ENAMETOOLONG, ErrorKind::InvalidFilename),
    (ENOENT, ErrorKind::NotFound),
    (ENOSPC, ErrorKind::StorageFull),
    (ENOTDIR, ErrorKind::NotADirectory),
    (ENOTEMPTY, ErrorKind::DirectoryNotEmpty),
    (EOPNOTSUPP, ErrorKind::Unsupported),
    (EROFS, ErrorKind::ReadOnlyFilesystem),
    (EXDEV, ErrorKind::CrossesDevices),
];

/// The number of an error of the system. `None` if it has none here, or the error is another one.
pub fn of(error: &io::Error) -> Option<i32> {
    error.raw_os_error()?;
    let (number, _) = KINDS.iter().find(|(_, kind)| *kind == error.kind())?;
    Some(*number)
}

/// What the number means.
pub fn kind(errno: i32) -> ErrorKind {
    let known = KINDS.iter().find(|(number, _)| *number == errno);
    known.map_or(ErrorKind::Other, |(_, kind)| *kind)
}
