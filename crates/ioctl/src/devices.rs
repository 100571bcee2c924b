//! Changing the devices of a mounted file system.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::abi::{ADD_DEV, COMPLETE, DEVICE_SPEC_BY_ID, RESIZE, RM_DEV_V2, VolArgs, VolArgsV2};
use crate::call;
use crate::invalid::invalid;

/// Gives a device another size. `wanted` is a number of bytes, `max` or `cancel`.
pub fn resize_device(inside: impl AsFd, devid: u64, wanted: &str) -> io::Result<()> {
    judge(call::ask::<RESIZE, _>(inside, named(format!("{devid}:{wanted}").as_bytes())?)?)
}

/// Adds the block device at `path`, whose content is lost.
pub fn add_device(inside: impl AsFd, path: &Path) -> io::Result<()> {
    judge(call::ask::<ADD_DEV, _>(inside, named(path.as_os_str().as_bytes())?)?)
}

/// Moves everything on a device to the others, and removes it.
pub fn remove_device(inside: impl AsFd, devid: u64) -> io::Result<()> {
    let mut args = VolArgsV2 { flags: DEVICE_SPEC_BY_ID, ..VolArgsV2::new_zeroed() };
    args.name[..size_of::<u64>()].copy_from_slice(&devid.to_ne_bytes());
    judge(call::ask::<RM_DEV_V2, _>(inside, args)?)
}

/// Gives block groups of a mount of larder the copies that they lack. Returns whether larder has
/// mounted it.
pub fn complete_redundancy(inside: impl AsFd) -> io::Result<bool> {
    match call::plain::<COMPLETE>(inside) {
        Ok(()) => Ok(true),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => Ok(false),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {
            judge(8).map(|()| true)
        }
        Err(error) => Err(error),
    }
}

/// The error if other work on the devices excludes what is asked for.
pub fn other_work() -> io::Error {
    let reason = "other work on the devices is in progress: a balance, a scrub, or one like this";
    io::Error::new(io::ErrorKind::ResourceBusy, reason)
}

/// The error of an answer that is a number (`enum btrfs_err_code`).
fn judge(answer: i32) -> io::Result<()> {
    let reason = match answer {
        0 => return Ok(()),
        1 => "raid1 needs two devices",
        2 => "raid10 needs four devices, or two with a newer kernel",
        3 => "raid5 needs two devices",
        4 => "raid6 needs three devices",
        5 => "it is the target of a replace that is in progress",
        6 => "no device is missing",
        7 => "it is the only device that can be written",
        8 => return Err(other_work()),
        9 => "raid1c3 needs three devices",
        10 => "raid1c4 needs four devices",
        _ => "the kernel refuses, and does not say why",
    };
    Err(io::Error::other(reason))
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
