//! Subvolumes and snapshots.

use std::ffi::{CString, c_char, c_int, c_void};

use larder::{SnapshotKind, Subvolume, SubvolumeInfo};
use larder_platform::{OsStringExt, errno};

use crate::arguments::{path, reference};
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, Outcome, number, number_of};

/// A subvolume or snapshot. The path is there only during the call.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct larder_subvolume {
    /// The path from the top level, with a slash before it, which need not be where the paths of
    /// other functions start.
    pub path: *const c_char,
    /// Its id.
    pub id: u64,
    /// The id of the subvolume that has its name.
    pub parent_id: u64,
    /// The transaction that last changed it.
    pub generation: u64,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The UUID of the subvolume that it is a snapshot of; zeros if it is none.
    pub parent_uuid: [u8; 16],
    /// The UUID of the subvolume that it was received from; zeros if it was not received.
    pub received_uuid: [u8; 16],
    /// Whether it is read-only.
    pub read_only: bool,
    /// Whether it was made as a snapshot.
    pub snapshot: bool,
}

/// Gets the subvolumes of larder_subvolume_list(), one by one. Returns true to go on.
#[allow(non_camel_case_types)]
pub type larder_subvolume_callback =
    Option<unsafe extern "C" fn(subvolume: *const larder_subvolume, context: *mut c_void) -> bool>;

/// Creates an empty subvolume. It is durable when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_subvolume_create(fs: *mut larder_fs, path: *const c_char) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        root.create_subvolume(path)?;
        Ok(())
    })
}

/// Deletes a subvolume or snapshot with all that is in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_subvolume_delete(fs: *mut larder_fs, path: *const c_char) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(root.delete_subvolume(path)?)
    })
}

/// Takes a snapshot of the subvolume at `from`, named `to`. It shares all data, and is durable when
/// this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_snapshot(
    fs: *mut larder_fs,
    from: *const c_char,
    to: *const c_char,
    read_only: bool,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let ((root, from), to) = unsafe { (larder_fs::at(fs, from)?, path(to)?) };
        let kind = if read_only { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        at(root, from)?.snapshot_to(root, to, kind)?;
        Ok(())
    })
}

/// Makes a subvolume read-only, or not. It is durable when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_subvolume_set_read_only(
    fs: *mut larder_fs,
    path: *const c_char,
    read_only: bool,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let (root, path) = unsafe { larder_fs::at(fs, path) }?;
        Ok(at(root, path)?.set_read_only(read_only)?)
    })
}

/// Calls `found` with each subvolume and `context`, in the order of their ids, without the top level
/// and those that are being deleted, until it returns false. Returns how many it was called with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_subvolume_list(
    fs: *mut larder_fs,
    found: larder_subvolume_callback,
    context: *mut c_void,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let filesystem = unsafe { reference(fs) }?.root.filesystem();
        let found = found.ok_or_else(|| Failure::new(libc::EFAULT, "an argument is NULL"))?;
        let mut count = 0;
        for info in filesystem.subvolumes() {
            let info = info?;
            let Some(name) = &info.name else { continue };
            let mut path = vec![b'/'];
            path.extend(filesystem.subvolume_path(info.id)?.into_os_string().into_vec());
            let has_zero = |_| Failure::new(errno::EUCLEAN, "a name has a zero in it");
            let path = CString::new(path).map_err(has_zero)?;
            let subvolume = described(&info, name.parent, &path);
            count += 1;
            // SAFETY: C gave the function, and the subvolume lives until it returns.
            if !unsafe { found(&raw const subvolume, context) } {
                break;
            }
        }
        Ok(count)
    })
}

fn described(info: &SubvolumeInfo, parent_id: u64, path: &CString) -> larder_subvolume {
    larder_subvolume {
        path: path.as_ptr(),
        id: info.id,
        parent_id,
        generation: info.generation,
        created: info.creation_time.seconds,
        uuid: info.uuid.into_bytes(),
        parent_uuid: info.parent_uuid.into_bytes(),
        received_uuid: info.received_uuid.into_bytes(),
        read_only: info.is_read_only,
        snapshot: info.is_snapshot,
    }
}

/// The subvolume whose root is at `path`.
pub(crate) fn at(root: &Subvolume, path: &std::path::Path) -> Outcome<Subvolume> {
    Ok(root.resolve(path)?.into_subvolume()?)
}
