//! Copies on other file systems.

use std::path::Path;

use super::{Body, Manifest, Timestamp, assert_same};

/// Compares a copy at the path `copy` with the original, except what a file system keeps to itself:
/// numbers, times of change and birth, flags, properties, and sizes of folders.
#[track_caller]
pub fn assert_copied(mut original: Manifest, copy: &Path) {
    let mut copied = Manifest::of_tree(copy);
    for (path, entry) in &mut copied.entries {
        // Folders that stand for subvolumes have times that the kernel makes up.
        let stands_for_subvolume =
            original.entries.get(path).is_some_and(|original| original.inode == 2);
        if stands_for_subvolume {
            entry.mtime = Timestamp::default();
        }
    }
    forget(&mut original);
    forget(&mut copied);
    assert_same(&original, &copied);
}

fn forget(manifest: &mut Manifest) {
    for entry in manifest.entries.values_mut() {
        (entry.atime, entry.ctime, entry.otime) = Default::default();
        (entry.inode, entry.subvolume, entry.allocated_bytes) = (0, 0, 0);
        entry.flags = None;
        entry.xattrs.retain(|name, _| !name.starts_with(b"btrfs."));
        if let Body::Folder { names } = &mut entry.body {
            names.clear();
            (entry.nlink, entry.size_bytes) = (1, 0);
        }
    }
}
