//! What the kernel keeps of a mount, and how it is changed.

use std::io;

use rustix::mount::{MountFlags, mount_remount};

use crate::usage::MountEntry;

/// Words of tables of mounts, and what takes them back.
const WORDS: [(&str, &str, MountFlags); 6] = [
    ("ro", "rw", MountFlags::RDONLY),
    ("nosuid", "suid", MountFlags::NOSUID),
    ("nodev", "dev", MountFlags::NODEV),
    ("noexec", "exec", MountFlags::NOEXEC),
    ("noatime", "atime", MountFlags::NOATIME),
    ("nodiratime", "diratime", MountFlags::NODIRATIME),
];

/// Has the kernel go on with `mount` as `words` say, and otherwise as before. If `ro` or `rw` changes what the
/// file system is, it changes for all mounts of it: what programs wrote goes to the server before it is read-only.
///
/// # Errors
/// `EBUSY` if a file is open for writing that could not be written any more, `EPERM` for all but root.
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
