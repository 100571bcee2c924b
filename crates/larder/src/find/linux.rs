//! Block devices, from `/proc` and `/sys`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use larder_device::StandIn;
use larder_image::Place;

/// All block devices that the kernel knows and that no other device is made from. A disk whose
/// only partition with btrfs the kernel knows is that partition.
pub fn block_devices() -> BTreeSet<PathBuf> {
    let table = fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let is_held = |name: &str| {
        let name = name.replace('/', "!");
        fs::read_dir(format!("/sys/class/block/{name}/holders"))
            .is_ok_and(|mut holders| holders.next().is_some())
    };
    let free = names.filter(|name| !is_held(name));
    let paths = free.map(|name| Path::new("/dev").join(name));
    let paths = paths.map(|path| StandIn::target_if_stand_in(&path).unwrap_or(path));
    // A disk is the partition that holds the file system, if the kernel knows that.
    paths.map(|path| larder_image::locate(&path, Place::Found).0).collect()
}
