//! Extended attributes.

use std::ffi::{c_char, c_int, c_void};

use larder::XattrMode;
use larder_platform::OsStrExt;

use crate::arguments::{bytes, elements_mut, path};
use crate::attributes::find;
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, Outcome, length, number};

/// For larder_setxattr(): the attribute must not exist. It is XATTR_CREATE of Linux.
pub const LARDER_XATTR_CREATE: c_int = 1;
/// For larder_setxattr(): the attribute must exist. It is XATTR_REPLACE of Linux.
pub const LARDER_XATTR_REPLACE: c_int = 2;

/// Copies an answer to `buffer`, or only says how long it is.
///
/// # Safety
/// As for [`elements_mut`].
unsafe fn answer(data: &[u8], buffer: *mut u8, count: usize) -> Outcome<usize> {
    if count == 0 {
        return Ok(data.len());
    }
    // SAFETY: the caller promises it.
    let place = unsafe { elements_mut(buffer, count) }?;
    let too_long = || Failure::new(libc::ERANGE, format!("{} bytes are needed", data.len()));
    place.get_mut(..data.len()).ok_or_else(too_long)?.copy_from_slice(data);
    Ok(data.len())
}

/// Copies the value of the extended attribute `name` of what is at `path` to `value`, which has room
/// for `size` bytes, as getxattr(2). Returns its length in bytes; with a `size` of 0 that is all.
/// `flags` is 0, or AT_SYMLINK_NOFOLLOW. Fails with ENODATA if there is no such attribute, and with
/// ERANGE if `size` is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_getxattr(
    fs: *mut larder_fs,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
    flags: c_int,
) -> libc::ssize_t {
    length(|| {
        // SAFETY: C promises it.
        unsafe {
            let ((root, path), name) = (larder_fs::at(fs, path)?, self::path(name)?);
            let found = find(root, path, flags)?.xattr(name.as_os_str())?;
            answer(&found, value.cast(), size)
        }
    })
}

/// Copies the names of all extended attributes of what is at `path` to `list`, which has room for
/// `size` bytes, with a zero after each, as listxattr(2). Returns their length in bytes; with a
/// `size` of 0 that is all. `flags` is 0, or AT_SYMLINK_NOFOLLOW. Fails with ERANGE if `size` is too
/// small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_listxattr(
    fs: *mut larder_fs,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
    flags: c_int,
) -> libc::ssize_t {
    length(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        let mut names = Vec::new();
        for xattr in find(root, path, flags)?.xattrs() {
            names.extend_from_slice(xattr?.name.as_bytes());
            names.push(0);
        }
        // SAFETY: C promises it.
        unsafe { answer(&names, list.cast(), size) }
    })
}

/// Gives what is at `path` the extended attribute `name`, whose value is `size` bytes at `value`, as
/// setxattr(2). The name has its namespace: "user.comment". `mode` is 0, LARDER_XATTR_CREATE or
/// LARDER_XATTR_REPLACE, and `flags` 0 or AT_SYMLINK_NOFOLLOW. Fails with EEXIST or ENODATA as
/// `mode` says, with ENOSPC if the value is too large, and with EOPNOTSUPP for an unknown namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_setxattr(
    fs: *mut larder_fs,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    mode: c_int,
    flags: c_int,
) -> c_int {
    number(|| {
        let mode = match mode {
            0 => XattrMode::Any,
            LARDER_XATTR_CREATE => XattrMode::Create,
            LARDER_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Failure::new(libc::EINVAL, "a mode that does not exist")),
        };
        // SAFETY: C promises it.
        let ((root, path), name, value) = unsafe {
            (larder_fs::at(fs, path)?, self::path(name)?, bytes(value.cast::<u8>(), size)?)
        };
        Ok(find(root, path, flags)?.set_xattr(name.as_os_str(), value, mode)?)
    })
}

/// Removes the extended attribute `name` of what is at `path`. `flags` is 0, or AT_SYMLINK_NOFOLLOW.
/// Fails with ENODATA if there is no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_removexattr(
    fs: *mut larder_fs,
    path: *const c_char,
    name: *const c_char,
    flags: c_int,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, path), name) = unsafe { (larder_fs::at(fs, path)?, self::path(name)?) };
        Ok(find(root, path, flags)?.remove_xattr(name.as_os_str())?)
    })
}
