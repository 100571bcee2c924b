//! The numbers of errors, by their names in C.
//!
//! On Windows they are those of the C library, which the module `errno` of Python has too. Where a
//! system lacks an error, the nearest one of its own takes that place.

#[cfg(all(unix, not(target_os = "linux")))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
mod words;

pub use libc::{
    EACCES, EBUSY, EEXIST, EFBIG, EINTR, EINVAL, EIO, EISDIR, ELOOP, EMLINK, ENAMETOOLONG, ENOENT,
    ENOSPC, ENOTDIR, ENOTEMPTY, ENXIO, EOPNOTSUPP, EOVERFLOW, EPERM, EROFS, ESTALE, EXDEV,
};

#[cfg(all(unix, not(target_os = "linux")))]
pub use bsd::{EDQUOT, ENODATA, EUCLEAN};
#[cfg(target_os = "linux")]
pub use linux::{EDQUOT, ENODATA, EUCLEAN};
#[cfg(unix)]
pub use unix::{kind, of};
#[cfg(windows)]
pub use windows::{EDQUOT, ENODATA, EUCLEAN, kind, of};
pub use words::in_words;
