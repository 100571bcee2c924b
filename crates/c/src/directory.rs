//! Listing directories.

use std::ffi::{CString, c_char, c_int};

use larder::{Entries, FileType};
use larder_platform::{OsStrExt, errno};

use crate::arguments::{exclusive, owned};
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, handle, number, number_of};

/// A directory that is being listed.
#[allow(non_camel_case_types)]
pub struct larder_dir {
    entries: Entries,
    /// The name that C reads.
    name: CString,
}

/// An entry of a directory.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct larder_dirent {
    /// The name. It stays as it is until the next call with this directory.
    pub name: *const c_char,
    /// The number of the inode.
    pub inode: u64,
    /// The type: one of S_IFREG, S_IFDIR and so on.
    pub r#type: libc::mode_t,
}

/// Opens a directory for listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_opendir(
    fs: *mut larder_fs,
    path: *const c_char,
) -> *mut larder_dir {
    handle(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        let entries = root.open_directory(path)?.entries()?;
        Ok(larder_dir { entries, name: CString::default() })
    })
}

/// Reads the next entry, in the order in which they were made, without "." and "..". Returns 1, 0
/// if there are no more, or a negative errno for an entry that cannot be read: the next call goes
/// on after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_readdir(dir: *mut larder_dir, entry: *mut larder_dirent) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let (dir, place) = unsafe { (exclusive(dir)?, exclusive(entry)?) };
        let Some(found) = dir.entries.next().transpose()? else { return Ok(0) };
        let has_zero = |_| Failure::new(errno::EUCLEAN, "a name has a zero in it");
        dir.name = CString::new(found.name().as_bytes()).map_err(has_zero)?;
        *place = larder_dirent {
            name: dir.name.as_ptr(),
            inode: found.inode_number(),
            r#type: type_bits(found.file_type()),
        };
        Ok(1)
    })
}

/// Ends a listing. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_closedir(dir: *mut larder_dir) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        drop(unsafe { owned(dir) });
        Ok(())
    })
}

fn type_bits(file_type: FileType) -> libc::mode_t {
    match file_type {
        FileType::Regular => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
    }
}
