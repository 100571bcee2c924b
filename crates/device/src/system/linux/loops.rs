//! Loop devices and their targets.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{Identity, block, ioctl, stand_in};

/// The loop devices that are attached to a target.
#[derive(Debug, Default)]
pub(super) struct Attached {
    /// Their reads and writes reach the target.
    pub(super) devices: Vec<u64>,
    /// [Stand-ins](crate::StandIn), through which no program reads or writes.
    pub(super) stand_ins: Vec<u64>,
}

/// The loop devices that are attached to `target`.
pub(super) fn attached_to(target: Identity) -> Attached {
    let mut attached = Attached::default();
    for directory in block::entries("/sys/block".into()) {
        if let Some((identity, is_stand_in)) = backing_file(&directory)
            && identity == target
            && let Some(device) = block::read_dev(&directory)
        {
            let kind = if is_stand_in { &mut attached.stand_ins } else { &mut attached.devices };
            kind.push(device);
        }
    }
    attached
}

/// The path of the target of a loop device, or of a partition of one. `None` if the device is no
/// attached loop device or the path no longer leads to the target.
pub(crate) fn backing_path(identity: Identity) -> Option<PathBuf> {
    let Identity::Block { rdev } = identity else { return None };
    let mut directory = block::sysfs_directory(rdev)?;
    if directory.join("partition").exists() {
        directory.pop();
    }
    let path = recorded_path(&directory)?;
    let (identity, _) = backing_file(&directory)?;
    (Identity::of_path(&path) == Some(identity)).then_some(path)
}

/// Whether the device is a [stand-in](crate::StandIn).
pub(crate) fn is_stand_in(identity: Identity) -> bool {
    let Identity::Block { rdev } = identity else { return false };
    let directory = block::sysfs_directory(rdev);
    directory.and_then(|it| backing_file(&it)).is_some_and(|(_, is_stand_in)| is_stand_in)
}

/// The target of the loop device with this directory in `/sys`, and whether it is a
/// [stand-in](crate::StandIn) for it.
///
/// The driver reports the target's device and inode number, which outlive a deleted name. If the
/// loop device may not be opened, its recorded name is used.
fn backing_file(directory: &Path) -> Option<(Identity, bool)> {
    let path = recorded_path(directory)?;
    let by_number = || {
        let node = block::node_path(block::read_dev(directory)?);
        let (identity, name) = ioctl::loop_status(&File::open(node).ok()?).ok()?;
        Some((identity, name == stand_in::NAME))
    };
    by_number().or_else(|| Some((Identity::of_path(&path)?, false)))
}

/// `None` if the device is no loop device or is not attached.
fn recorded_path(directory: &Path) -> Option<PathBuf> {
    let mut path = fs::read(directory.join("loop/backing_file")).ok()?;
    path.pop_if(|byte| *byte == b'\n');
    Some(OsString::from_vec(path).into())
}
