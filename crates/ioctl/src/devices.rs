//! Changing the devices of a mounted file system.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::FromZeros;

use crate::abi::{ADD_DEV, DEVICE_SPEC_BY_ID, RESIZE, RM_DEV_V2, VolArgs, VolArgsV2};
use crate::{call, invalid};

/// Gives a device another size. `wanted` is a number of bytes, `max` or `cancel`.
pub fn resize_device(inside: impl AsFd, devid: u64, wanted: &str) -> io::Result<()> {
    call::write::<RESIZE, _>(inside, named(format!("{devid}:{wanted}").as_bytes())?)
}

/// Adds the block device at `path`, whose content is lost.
pub fn add_device(inside: impl AsFd, path: &Path) -> io::Result<()> {
    call::write::<ADD_DEV, _>(inside, named(path.as_os_str().as_bytes())?)
}

/// Moves everything on a device to the others, and removes it.
pub fn remove_device(inside: impl AsFd, devid: u64) -> io::Result<()> {
    let mut args = VolArgsV2 { flags: DEVICE_SPEC_BY_ID, ..VolArgsV2::new_zeroed() };
    args.name[..size_of::<u64>()].copy_from_slice(&devid.to_ne_bytes());
    call::write::<RM_DEV_V2, _>(inside, args)
}

/// A structure with a name in it.
pub(crate) fn named(name: &[u8]) -> io::Result<VolArgs> {
    let mut args = VolArgs::new_zeroed();
    // A zero ends it.
    let room = args.name.len() - 1;
    let place = args.name.get_mut(..name.len()).filter(|_| name.len() <= room);
    place.ok_or(invalid("a path that is too long"))?.copy_from_slice(name);
    Ok(args)
}
