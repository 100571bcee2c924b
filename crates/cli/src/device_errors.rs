//! The devices of a file system, how often each failed, and which missed commits.

use std::fs::File;
use std::path::{Path, PathBuf};

use larder::Overview;
use larder_device::{InUse, in_use};
use larder_ioctl::{DeviceErrors, DeviceInfo};

use crate::source::Source;

/// A device and its counters.
pub type Counted = (DeviceInfo, DeviceErrors);

/// The directory at `path`, or where the image or device at `path` is mounted; `None` if it is not.
pub fn mounted_at(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    in_use(path).ok()?.filter(InUse::is_of_whole)?.mounted_at().map(Path::to_owned)
}

/// Those of the mounted file system that `directory` is in. `resets` sets the counters to zero.
pub fn of_mount(directory: &File, resets: bool) -> anyhow::Result<Vec<Counted>> {
    let counted = |device: DeviceInfo| {
        let errors = larder_ioctl::device_errors(directory, device.id, resets)?;
        Ok((device, errors))
    };
    larder_ioctl::devices(directory)?.into_iter().map(counted).collect()
}

/// Those of the file system on `image`, which is not mounted, and its generation.
pub fn of_image(
    source: &Source,
    image: &Path,
    resets: bool,
) -> anyhow::Result<(u64, Vec<Counted>)> {
    let filesystem = if resets { source.open_for_writing(image)? } else { source.open(image)? };
    let errors = filesystem.device_errors()?;
    let own = filesystem.uuid();
    let devices = filesystem.devices().into_iter().zip(errors);
    let counted = devices.map(|(device, errors)| {
        let info = DeviceInfo {
            id: device.id,
            uuid: device.uuid,
            filesystem: filesystem.filesystem_of_device(device.id).unwrap_or(own),
            total_bytes: device.total_bytes,
            allocated_bytes: device.allocated_bytes,
            path: device.name.unwrap_or_default().into_bytes(),
        };
        let errors = DeviceErrors {
            writes: errors.writes,
            reads: errors.reads,
            flushes: errors.flushes,
            corruptions: errors.corruptions,
            generations: errors.generations,
        };
        (info, errors)
    });
    let counted: Vec<Counted> = counted.collect();
    if resets {
        for (device, _) in &counted {
            filesystem.reset_device_errors(device.id)?;
        }
        filesystem.sync()?;
    }
    Ok((filesystem.generation(), counted))
}

/// Devices that missed commits, as far as the file system tells.
pub fn outdated(filesystem: &dyn Overview) -> Vec<u64> {
    let devices = filesystem.devices().unwrap_or_default().into_iter();
    devices.filter(|device| device.is_stale).map(|device| device.id).collect()
}
