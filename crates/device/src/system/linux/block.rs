//! Block devices as `/sys` shows them.

use std::fs;
use std::path::{Path, PathBuf};

use super::Identity;
use super::mount_table::parse_device_number;

/// The directory of a block device in `/sys`, links resolved.
pub(super) fn sysfs_directory(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The device number in a device's directory in `/sys`.
pub(super) fn read_dev(directory: &Path) -> Option<u64> {
    parse_device_number(fs::read(directory.join("dev")).ok()?.trim_ascii_end(), 10)
}

/// The usual name of a block device's node.
pub(super) fn node_path(rdev: u64) -> PathBuf {
    match sysfs_directory(rdev).as_deref().and_then(Path::file_name) {
        // `/sys` writes the slash of a name like `cciss/c0d0` as an exclamation mark.
        Some(name) => Path::new("/dev").join(name.to_string_lossy().replace('!', "/")),
        None => {
            format!("/dev/block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev)).into()
        }
    }
}

/// The devices that device mapper, md and the like made from this one.
pub(super) fn holders(rdev: u64) -> Vec<u64> {
    let directory = sysfs_directory(rdev).map(|directory| directory.join("holders"));
    directory.into_iter().flat_map(entries).filter_map(|holder| read_dev(&holder)).collect()
}

/// The partitions of a whole disk.
pub(super) fn partitions(rdev: u64) -> Vec<u64> {
    sysfs_directory(rdev)
        .into_iter()
        .flat_map(entries)
        .filter(|entry| entry.join("partition").exists())
        .filter_map(|partition| read_dev(&partition))
        .collect()
}

/// The partition of a whole disk that takes `len_bytes` from `offset` on.
pub(super) fn partition_at(rdev: u64, offset: u64, len_bytes: u64) -> Option<u64> {
    /// The unit of `/sys`, whatever the sectors of the disk.
    const UNIT_BYTES: u64 = 512;
    let bytes = |partition: &Path, name: &str| {
        let units: u64 = fs::read_to_string(partition.join(name)).ok()?.trim().parse().ok()?;
        units.checked_mul(UNIT_BYTES)
    };
    entries(sysfs_directory(rdev)?)
        .filter(|entry| entry.join("partition").exists())
        .find(|entry| {
            bytes(entry, "start") == Some(offset) && bytes(entry, "size") == Some(len_bytes)
        })
        .and_then(|partition| read_dev(&partition))
}

/// All devices of the mounted btrfs that this device belongs to. A mount names only one of them.
pub(super) fn btrfs_members(rdev: u64) -> Option<Vec<Identity>> {
    entries("/sys/fs/btrfs".into())
        .map(|file_system| {
            let devices = entries(file_system.join("devices"));
            devices.filter_map(|device| read_dev(&device)).collect::<Vec<_>>()
        })
        .find(|members| members.contains(&rdev))
        .map(|members| members.into_iter().map(|rdev| Identity::Block { rdev }).collect())
}

/// The entries of a directory; none if it cannot be read.
pub(super) fn entries(directory: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
