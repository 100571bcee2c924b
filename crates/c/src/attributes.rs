//! Changing attributes.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use larder::{Inode, SetAttributes, Subvolume, Timestamp};

use crate::arguments::{bytes, exclusive, permissions};
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, Outcome, number};

/// The inode at `path`. `flags` are 0 or AT_SYMLINK_NOFOLLOW.
pub(crate) fn find(root: &Subvolume, path: &Path, flags: c_int) -> Outcome<Inode> {
    match flags {
        0 => Ok(root.resolve(path)?),
        libc::AT_SYMLINK_NOFOLLOW => Ok(root.lookup(path)?),
        _ => Err(Failure::new(libc::EINVAL, "flags are 0 or AT_SYMLINK_NOFOLLOW")),
    }
}

/// Changes the permissions of what is at `path`, as chmod(2). An ACL follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_chmod(
    fs: *mut larder_fs,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        let permissions = Some(permissions(mode));
        let new = SetAttributes { permissions, ..SetAttributes::default() };
        Ok(root.resolve(path)?.set_attributes(&new)?)
    })
}

/// Changes the owner and group of what is at `path`, as chown(2): an id of -1 stays. `flags` is 0,
/// or AT_SYMLINK_NOFOLLOW. A file loses its set-user-ID bit and capabilities.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_chown(
    fs: *mut larder_fs,
    path: *const c_char,
    uid: libc::uid_t,
    gid: libc::gid_t,
    flags: c_int,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        let id = |id: u32| (id != u32::MAX).then_some(id);
        let new = SetAttributes { uid: id(uid), gid: id(gid), ..SetAttributes::default() };
        Ok(find(root, path, flags)?.set_attributes(&new)?)
    })
}

/// Sets the times of last access, `times[0]`, and last modification, `times[1]`, of what is at
/// `path`, as utimensat(2): `tv_nsec` may be UTIME_NOW or UTIME_OMIT, and if `times` is NULL both
/// are now. `flags` is 0, or AT_SYMLINK_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_utimens(
    fs: *mut larder_fs,
    path: *const c_char,
    times: *const libc::timespec,
    flags: c_int,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        let new = if times.is_null() {
            let now = Some(now()?);
            SetAttributes { atime: now, mtime: now, ..SetAttributes::default() }
        } else {
            // SAFETY: C promises it.
            let times = unsafe { bytes(times, 2) }?;
            let (atime, mtime) = (time(&times[0])?, time(&times[1])?);
            SetAttributes { atime, mtime, ..SetAttributes::default() }
        };
        Ok(find(root, path, flags)?.set_attributes(&new)?)
    })
}

/// A time that C gives; `None` if it stays.
fn time(time: &libc::timespec) -> Outcome<Option<Timestamp>> {
    match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => now().map(Some),
        nanoseconds => {
            let invalid = |_| Failure::new(libc::EINVAL, "a time that does not exist");
            let nanoseconds = u32::try_from(nanoseconds).map_err(invalid)?;
            Ok(Some(Timestamp { seconds: time.tv_sec, nanoseconds }))
        }
    }
}

fn now() -> Outcome<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let wrong = |_| Failure::new(libc::EINVAL, "the clock is before 1970");
    let since = since.map_err(wrong)?;
    Ok(Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() })
}

/// Makes the file at `path` `size` bytes long, as truncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_truncate(
    fs: *mut larder_fs,
    path: *const c_char,
    size: u64,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(root.open_file(path)?.open_for_writing(false)?.set_len(size)?)
    })
}

/// Stores the flags of what is at `path` in `flags`: those of chattr(1), as FS_IOC_GETFLAGS of
/// <linux/fs.h> has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_get_flags(
    fs: *mut larder_fs,
    path: *const c_char,
    flags: *mut u32,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, path), flags) = unsafe { (larder_fs::at(fs, path)?, exclusive(flags)?) };
        *flags = root.resolve(path)?.metadata().ioctl_flags();
        Ok(())
    })
}

/// Gives what is at `path` exactly these flags, as FS_IOC_SETFLAGS of <linux/fs.h>: FS_NOCOW_FL,
/// FS_COMPR_FL and so on. Fails with EOPNOTSUPP for flags that cannot be changed, and with EINVAL
/// for flags that exclude each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_set_flags(
    fs: *mut larder_fs,
    path: *const c_char,
    flags: u32,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(root.resolve(path)?.set_ioctl_flags(flags)?)
    })
}
