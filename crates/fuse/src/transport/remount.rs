//! The mount options that the kernel keeps, and changing them.

use std::io;

use rustix::mount::{MountFlags, mount_remount};

use crate::usage::MountEntry;

/// Words of mount tables, and the words that revoke them.
const WORDS: [(&str, &str, MountFlags); 7] = [
    ("ro", "rw", MountFlags::RDONLY),
    ("nosuid", "suid", MountFlags::NOSUID),
    ("nodev", "dev", MountFlags::NODEV),
    ("noexec", "exec", MountFlags::NOEXEC),
    ("nosymfollow", "symfollow", MountFlags::NOSYMFOLLOW),
    ("noatime", "atime", MountFlags::NOATIME),
    ("nodiratime", "diratime", MountFlags::NODIRATIME),
];

/// Makes the kernel apply `words` to `mount`, and keep its other options. If `ro` or `rw` changes
/// the superblock, it changes for all mounts of it: dirty data goes to the server before the
/// superblock is read-only.
///
/// # Errors
/// `EBUSY` if a file is open for writing and would become read-only, `EPERM` for users other than
/// root.
pub fn remount(mount: &MountEntry, words: &str) -> io::Result<()> {
    let mut flags = MountFlags::empty();
    for word in mount.options.split(',').chain(words.split(',')) {
        for (set, cleared, flag) in WORDS {
            if word == set {
                flags |= flag;
            } else if word == cleared {
                flags -= flag;
            }
        }
    }
    let said = words.split(',').rfind(|word| ["ro", "rw"].contains(word));
    if said.is_none_or(|word| (word == "ro") == mount.has_read_only_superblock()) {
        // This mount alone.
        flags |= MountFlags::BIND;
    }
    Ok(mount_remount(&mount.path, flags, "")?)
}
