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

/// Has the kernel go on with `mount` as `words` say, and otherwise as before. With `ro` or `rw` this is so for the file
/// system, wherever it is mounted: what programs wrote goes to the server before it is read-only.
///
/// # Errors
/// `EBUSY` if a file is open for writing that could not be written any more, `EPERM` for all but root.
pub fn remount(mount: &MountEntry, words: &str) -> io::Result<()> {
    let mut flags = MountFlags::empty();
    let before = mount.options.split(',').chain(mount.is_read_only().then_some("ro"));
    for word in before.chain(words.split(',')) {
        for (set, cleared, flag) in WORDS {
            if word == set {
                flags |= flag;
            } else if word == cleared {
                flags -= flag;
            }
        }
    }
    Ok(mount_remount(&mount.path, flags, "")?)
}
