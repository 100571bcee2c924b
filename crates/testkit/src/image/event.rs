//! Events after a file system was made and filled.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Profile;
use crate::command::run;
use crate::content::Content;
use crate::guard::{KernelMount, LoopDevice, Scratch};

/// An action of an administrator that leaves traces on disk.
#[derive(Clone, Debug)]
pub enum Event {
    /// Moves everything (`btrfs balance`): shared references by parent, block groups at high
    /// addresses.
    Balance,
    /// Converts everything to other profiles, of data and of metadata.
    Convert(Profile, Profile),
    /// Removes the first device, so that the device ids no longer start at 1.
    RemoveFirstDevice,
    /// Replaces the first device by a new one of the same length.
    ReplaceFirstDevice,
    /// Writes while the last device is missing, which is then out of date. The profiles must
    /// tolerate that.
    MissLastDevice,
    /// Gives the file system a new fsid and keeps the old one as metadata uuid.
    ChangeFsid,
    /// Makes the devices a seed and adds one of this length, which gets all later writes.
    Sprout(u64),
    /// Makes the subvolume at this path the one that is mounted by default.
    SetDefault(&'static str),
}

impl Event {
    /// Applies the event to the unmounted file system on `devices`, image files in `scratch`.
    /// Updates the list if the set of devices changes.
    #[track_caller]
    pub(super) fn happen(&self, devices: &mut Vec<PathBuf>, scratch: &Scratch, content: &Content) {
        match *self {
            Self::Balance => {
                let mount = KernelMount::open(devices, "");
                btrfs(&["balance", "start", "--full-balance"], &[mount.path()]);
            }
            Self::Convert(data, metadata) => convert(devices, data, metadata),
            Self::RemoveFirstDevice => remove_first(devices),
            Self::ReplaceFirstDevice => replace_first(devices, scratch),
            Self::MissLastDevice => miss_last(devices, content),
            Self::ChangeFsid => tune(devices, &["-f", "-m"]),
            Self::Sprout(len_bytes) => sprout(devices, scratch, content, len_bytes),
            Self::SetDefault(path) => {
                let mount = KernelMount::open(devices, "");
                btrfs(&["subvolume", "set-default"], &[&mount.path().join(path)]);
            }
        }
    }
}

#[track_caller]
fn btrfs(command: &[&str], paths: &[&Path]) {
    let command = command.iter().map(OsStr::new);
    run("btrfs", command.chain(paths.iter().map(|path| path.as_os_str())))
        .unwrap_or_else(|error| panic!("{error}"));
}

/// btrfstune needs to find all devices among the machine's block devices.
#[track_caller]
fn tune(devices: &[PathBuf], options: &[&str]) {
    let attached: Vec<_> = devices.iter().map(|file| LoopDevice::attach(file)).collect();
    let options = options.iter().map(OsStr::new);
    run("btrfstune", options.chain([attached[0].path().as_os_str()]))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[track_caller]
fn convert(devices: &[PathBuf], data: Profile, metadata: Profile) {
    let mount = KernelMount::open(devices, "");
    let data = format!("-dconvert={}", data.name());
    let metadata = format!("-mconvert={}", metadata.name());
    btrfs(&["balance", "start", "--force", &data, &metadata], &[mount.path()]);
}

#[track_caller]
fn remove_first(devices: &mut Vec<PathBuf>) {
    let mount = KernelMount::open(devices, "");
    btrfs(&["device", "remove", "1"], &[mount.path()]);
    drop(mount);
    std::fs::remove_file(devices.remove(0)).expect("the image file can be removed");
}

#[track_caller]
fn replace_first(devices: &mut [PathBuf], scratch: &Scratch) {
    let len_bytes = std::fs::metadata(&devices[0]).expect("the image file is there").len();
    let replacement = scratch.sparse_file("replacement", len_bytes);
    let attached = LoopDevice::attach(&replacement);
    // Declared after the device that it does not own, to be dropped before it.
    let mount = KernelMount::open(devices, "");
    btrfs(&["replace", "start", "-B", "1"], &[attached.path(), mount.path()]);
    drop(mount);
    drop(attached);
    let replaced = std::mem::replace(&mut devices[0], replacement);
    std::fs::remove_file(replaced).expect("the image file can be removed");
}

#[track_caller]
fn miss_last(devices: &[PathBuf], content: &Content) {
    let mount = KernelMount::open(&devices[..devices.len() - 1], "degraded");
    add_data(&mount, "while-missing", content);
}

/// Turns all devices into a seed, adds another and fills it.
#[track_caller]
fn sprout(devices: &mut Vec<PathBuf>, scratch: &Scratch, content: &Content, len_bytes: u64) {
    tune(devices, &["-S", "1"]);
    let sprout = scratch.sparse_file("sprout", len_bytes);
    let attached = LoopDevice::attach(&sprout);
    let mount = KernelMount::open(devices, "");
    btrfs(&["device", "add"], &[attached.path(), mount.path()]);
    mount.remount("rw");
    add_data(&mount, "sprout", content);
    // Unmount before detaching the sprout's device, which the mount does not own.
    drop(mount);
    drop(attached);
    devices.push(sprout);
}

#[track_caller]
fn add_data(mount: &KernelMount, folder: &str, content: &Content) {
    let folder = mount.path().join(folder);
    std::fs::create_dir(&folder).expect("the file system can be written");
    content.fill_data(&folder);
}
