//! Opening and closing.

use std::ffi::{c_char, c_int, c_uint};

use larder::{OpenOptions, Subvolume};

use crate::arguments::{owned, paths, reference};
use crate::outcome::{Failure, Outcome, handle, number};

/// For larder_open(): for writing too. No other program can have the file system open for writing
/// meanwhile.
pub const LARDER_OPEN_WRITE: c_uint = 1;
/// For larder_open(): also if devices are missing, as long as the others are enough to read all.
pub const LARDER_OPEN_DEGRADED: c_uint = 2;

/// An open file system.
#[allow(non_camel_case_types)]
pub struct larder_fs {
    /// The default subvolume.
    pub(crate) root: Subvolume,
}

/// Opens the file system on `count` image files or block devices, in any order. `flags` are of
/// LARDER_OPEN_*.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_open(
    images: *const *const c_char,
    count: usize,
    flags: c_uint,
) -> *mut larder_fs {
    handle(|| {
        if flags & !(LARDER_OPEN_WRITE | LARDER_OPEN_DEGRADED) != 0 {
            return Err(Failure::new(libc::EINVAL, "a flag of larder_open() that does not exist"));
        }
        // SAFETY: C promises it.
        let images = unsafe { paths(images, count) }?;
        let options = OpenOptions::new()
            .write(flags & LARDER_OPEN_WRITE != 0)
            .degraded(flags & LARDER_OPEN_DEGRADED != 0);
        let root = options.open(images)?.default_subvolume()?;
        Ok(larder_fs { root })
    })
}

/// Makes all changes durable, by a commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_sync(fs: *mut larder_fs) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        Ok(fs.root.filesystem().sync()?)
    })
}

/// Makes all changes durable and frees the file system, also if that fails. Files and directories
/// that are open must be closed before. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_close(fs: *mut larder_fs) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let fs = unsafe { owned(fs) };
        fs.map_or(Ok(()), |fs| Ok(fs.root.filesystem().sync()?))
    })
}

impl larder_fs {
    /// The file system of a call, and the path that the call is about.
    ///
    /// # Safety
    /// As for [`reference`] and [`path`](crate::arguments::path).
    pub(crate) unsafe fn at<'a>(
        fs: *mut Self,
        path: *const c_char,
    ) -> Outcome<(&'a Subvolume, &'a std::path::Path)> {
        // SAFETY: the caller promises it.
        Ok(unsafe { (&reference(fs)?.root, crate::arguments::path(path)?) })
    }
}
