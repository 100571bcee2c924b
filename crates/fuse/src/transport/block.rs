//! Mounts whose source is a block device, which sync(2) and syncfs(2) reach.
//!
//! The kernel passes these on (SYNCFS) to servers of type `fuseblk` only. Such a mount needs a
//! block device, which the kernel claims. A [`StandIn`](larder_device::StandIn) is that device.
//!
//! # Invariants
//! - umount(2) sends DESTROY to the server of such a mount and waits for the reply; only the end of
//!   the connection interrupts it. A server therefore makes another process [unmount](unmount) what
//!   it serves.
//! - If a server dies with its mount namespace, the kernel unmounts in the dying process, before
//!   that has closed its connection: the process waits for itself. Hence such mounts are made only
//!   in the first mount namespace, which never ends.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::program::run;
use super::version;

/// The first Linux that passes sync(2) on.
const FIRST_LINUX: (u32, u32) = (6, 18);
/// `MNT_NS_INIT_INO` of linux/nsfs.h: the inode of the first mount namespace.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFF8;

/// Whether root can make such mounts here without danger, and the kernel passes sync(2) on to them.
pub(super) fn is_offered() -> bool {
    let namespace = fs::metadata("/proc/self/ns/mnt").map(|namespace| namespace.ino());
    version::is_at_least(FIRST_LINUX) && namespace.is_ok_and(|inode| inode == FIRST_NAMESPACE)
}

/// Makes umount(8) unmount `mountpoint`: at once, or, if `lazily`, when it is not in use any more.
pub(super) fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    // Without helpers, which might be this very program.
    let mut command = Command::new("umount");
    run(command.arg("-i").args(lazily.then_some("-l")).arg(mountpoint))
}
