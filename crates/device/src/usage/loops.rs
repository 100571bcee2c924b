//! Loop devices and what they are attached to.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{Identity, block};
use crate::ioctl;

/// The device number of a loop device that is attached to `target`.
pub(super) fn attached_to(target: Identity) -> Option<u64> {
    block::entries("/sys/block".into())
        .filter(|directory| backing_file(directory) == Some(target))
        .find_map(|directory| block::read_dev(&directory))
}

/// The path of what a loop device, or a partition of one, is attached to. `None` if the device is
/// no attached loop device or the path no longer leads there.
pub(crate) fn backing_path(identity: Identity) -> Option<PathBuf> {
    let Identity::Block { rdev } = identity else { return None };
    let mut directory = block::sysfs_directory(rdev)?;
    if directory.join("partition").exists() {
        directory.pop();
    }
    let path = recorded_path(&directory)?;
    (Identity::of_path(&path) == backing_file(&directory)).then_some(path)
}

/// What the loop device with this directory in `/sys` is attached to.
///
/// The driver knows by number, which outlives a deleted name; where its node may not be opened, the
/// name that it recorded has to do.
fn backing_file(directory: &Path) -> Option<Identity> {
    let path = recorded_path(directory)?;
    let by_number = || {
        let node = block::node_path(block::read_dev(directory)?);
        ioctl::loop_backing_file(&File::open(node).ok()?).ok()
    };
    by_number().or_else(|| Identity::of_path(&path))
}

/// `None` if the device is no loop device or is not attached.
fn recorded_path(directory: &Path) -> Option<PathBuf> {
    let mut path = fs::read(directory.join("loop/backing_file")).ok()?;
    path.pop_if(|byte| *byte == b'\n');
    Some(OsString::from_vec(path).into())
}
