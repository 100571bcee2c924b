//! Opening what is below a file system, for commands that look inside.

use std::path::PathBuf;

use larder::device::Place;
use larder_device::Access;
use larder_volume::{OpenOptions, Volume};

use crate::ending::wait_for_ending_servers;
use crate::place::located;

/// Opens the file system at `place` of `paths`, which are all its devices, for reading.
pub fn open_volume(
    paths: &[PathBuf],
    place: Place,
    options: &OpenOptions,
) -> anyhow::Result<Volume> {
    wait_for_ending_servers(&located(paths, place));
    let devices = paths.iter().map(|path| larder_image::open(path, Access::ReadOnly, place));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    Ok(Volume::open(devices, options)?)
}
