//! Names, and what they lead to.

use std::ffi::{c_char, c_int};

use larder::{Inode, Timestamp};
use larder_platform::device_number;

use crate::arguments::{elements_mut, path, permissions};
use crate::filesystem::larder_fs;
use crate::outcome::{Outcome, length, number};

/// `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;

/// Fills C's attributes.
///
/// # Safety
/// `found` is NULL, or valid for writing.
pub(crate) unsafe fn fill_stat(inode: &Inode, found: *mut libc::stat) -> Outcome<()> {
    // SAFETY: the caller promises it.
    let found = unsafe { crate::arguments::exclusive(found) }?;
    let metadata = inode.metadata();
    // SAFETY: it is plain numbers, of which zero is one.
    *found = unsafe { std::mem::zeroed() };
    found.st_dev = metadata.subvolume as libc::dev_t;
    found.st_ino = metadata.inode;
    found.st_mode = metadata.mode as libc::mode_t;
    found.st_nlink = metadata.nlink as libc::nlink_t;
    found.st_uid = metadata.uid;
    found.st_gid = metadata.gid;
    found.st_rdev = device_number(metadata.device.0, metadata.device.1) as libc::dev_t;
    found.st_size = metadata.size_bytes as libc::off_t;
    let bytes = metadata.allocated_bytes.saturating_add(metadata.dirty_bytes);
    found.st_blocks = (bytes / BLOCK_BYTES) as libc::blkcnt_t;
    found.st_blksize = inode.subvolume().filesystem().sector_bytes() as libc::blksize_t;
    let parts = |time: Timestamp| (time.seconds, time.nanoseconds.into());
    (found.st_atime, found.st_atime_nsec) = parts(metadata.atime);
    (found.st_mtime, found.st_mtime_nsec) = parts(metadata.mtime);
    (found.st_ctime, found.st_ctime_nsec) = parts(metadata.ctime);
    Ok(())
}

/// The attributes of what is at `path`. `st_dev` is the id of the subvolume: with `st_ino` it is
/// unique in the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_stat(
    fs: *mut larder_fs,
    path: *const c_char,
    found: *mut libc::stat,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        unsafe {
            let (root, path) = larder_fs::at(fs, path)?;
            fill_stat(&root.resolve(path)?, found)
        }
    })
}

/// As larder_stat(), but a symbolic link at the end is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_lstat(
    fs: *mut larder_fs,
    path: *const c_char,
    found: *mut libc::stat,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        unsafe {
            let (root, path) = larder_fs::at(fs, path)?;
            fill_stat(&root.lookup(path)?, found)
        }
    })
}

/// Creates an empty directory. No umask applies to `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_mkdir(
    fs: *mut larder_fs,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        root.create_directory(path, permissions(mode))?;
        Ok(())
    })
}

/// Removes an empty directory, which may be a subvolume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_rmdir(fs: *mut larder_fs, path: *const c_char) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(root.remove_directory(path)?)
    })
}

/// Removes a name that is not that of a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_unlink(fs: *mut larder_fs, path: *const c_char) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(root.remove_file(path)?)
    })
}

/// Renames `from` to `to`, and replaces what is there: a file, or an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_rename(
    fs: *mut larder_fs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, from), to) = unsafe { (larder_fs::at(fs, from)?, path(to)?) };
        Ok(root.rename(from, to)?)
    })
}

/// Gives the file `from` the further name `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_link(
    fs: *mut larder_fs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, from), to) = unsafe { (larder_fs::at(fs, from)?, path(to)?) };
        Ok(root.hard_link(from, to)?)
    })
}

/// Creates a symbolic link to `target` at `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_symlink(
    fs: *mut larder_fs,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, path), target) =
            unsafe { (larder_fs::at(fs, path)?, crate::arguments::path(target)?) };
        root.symlink(target, path)?;
        Ok(())
    })
}

/// Copies the target of the symbolic link at `path` to `buffer`, without a zero after it, and as
/// much of it as fits into `count` bytes. Returns how many were copied, as readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_readlink(
    fs: *mut larder_fs,
    path: *const c_char,
    buffer: *mut c_char,
    count: usize,
) -> libc::ssize_t {
    length(|| {
        // SAFETY: C promises it.
        let ((root, path), buffer) =
            unsafe { (larder_fs::at(fs, path)?, elements_mut(buffer.cast(), count)?) };
        let target = root.read_link(path)?.into_os_string().into_encoded_bytes();
        let len = target.len().min(count);
        buffer[..len].copy_from_slice(&target[..len]);
        Ok(len)
    })
}
