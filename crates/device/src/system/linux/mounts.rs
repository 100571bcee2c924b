//! Mounts and swap spaces, from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use super::Identity;
use super::mount_table::{KernelMount, unescape};
use crate::usage::Mounts;

/// Where one of `devices` is mounted, in this mount namespace, by one of `mounts`.
pub(super) fn mount_point(devices: &[Identity], mounts_that_count: Mounts) -> Option<PathBuf> {
    let mount = KernelMount::of_this_process().ok()?.into_iter().find(|mount| {
        let counts = mounts_that_count == Mounts::All || !is_larders(mount);
        counts && source_of(mount).is_some_and(|identity| devices.contains(&identity))
    })?;
    Some(mount.path)
}

/// Whether `identity` is active swap space.
pub(super) fn is_swap(identity: Identity) -> bool {
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    swaps
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter_map(|line| line.split(|&byte| byte == b' ').next())
        .any(|path| Identity::of_path(Path::new(&unescape(path))) == Some(identity))
}

/// Whether a Larder server serves `mount`.
fn is_larders(mount: &KernelMount) -> bool {
    matches!(&*mount.kind, "fuse.larder" | "fuseblk.larder")
}

/// The source of a mount. Btrfs and FUSE have device numbers of their own, so that only the
/// source's name tells; the number of a block device is more reliable.
fn source_of(mount: &KernelMount) -> Option<Identity> {
    if rustix::fs::major(mount.device) != 0 {
        Some(Identity::Block { rdev: mount.device })
    } else if mount.source.is_absolute() {
        Identity::of_path(&mount.source)
    } else {
        None
    }
}
