//! Replacing a device of a mounted file system.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{
    DEV_REPLACE, REPLACE_ALREADY_STARTED, REPLACE_CANCEL, REPLACE_NOT_STARTED,
    REPLACE_SCRUB_IN_PROGRESS, REPLACE_START, REPLACE_STATUS, ReplaceArgs, ReplaceStatusArgs,
};
use crate::call;
use crate::devices::other_work;
use crate::invalid::invalid;

/// The state of a replace that goes on (`BTRFS_IOCTL_DEV_REPLACE_STATE_STARTED`).
pub const REPLACE_STARTED: u64 = 1;

/// How far a replace is.
pub type ReplaceProgress = ReplaceStatusArgs;

/// Copies everything on a device to the one at `target`, which takes its place. Returns when that
/// has ended.
pub fn start_replace(
    inside: impl AsFd,
    devid: u64,
    avoid_source: bool,
    target: &Path,
) -> io::Result<()> {
    let name = target.as_os_str().as_bytes();
    let mut args = ReplaceArgs { command: REPLACE_START, ..ReplaceArgs::new_zeroed() };
    args.start.source = devid;
    args.start.avoids_source = u64::from(avoid_source);
    // A zero ends it.
    let room = args.start.target_name.len() - 1;
    let place = args.start.target_name.get_mut(..name.len()).filter(|_| name.len() <= room);
    place.ok_or(invalid("a path that is too long"))?.copy_from_slice(name);
    ended(inside, &mut args)
}

/// Goes on with a replace on a mount of larder that was interrupted.
pub fn resume_replace(inside: impl AsFd) -> io::Result<()> {
    let mut args = ReplaceArgs { command: REPLACE_START, ..ReplaceArgs::new_zeroed() };
    ended(inside, &mut args)
}

fn ended(inside: impl AsFd, args: &mut ReplaceArgs) -> io::Result<()> {
    let asked = call::ask_and_fill::<DEV_REPLACE, _>(inside, args);
    let answer = asked.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::CANCELED) => io::Error::other("it was cancelled"),
        Some(Errno::NOENT) => io::Error::other("there is no such device"),
        Some(Errno::NOTBLK) => io::Error::other("the target must be a block device"),
        Some(Errno::NOTTY) => io::Error::other("this mount cannot replace devices"),
        _ => error,
    })?;
    match (answer, args.result) {
        (0, 0) => Ok(()),
        (0, REPLACE_ALREADY_STARTED) => {
            Err(io::Error::other("a replace is unfinished: 'larder replace cancel' gives it up"))
        }
        (0, REPLACE_SCRUB_IN_PROGRESS) => Err(other_work()),
        (0, _) => Err(io::Error::other("the kernel refuses, and does not say why")),
        (_, _) => Err(other_work()),
    }
}

/// How far a replace is, or how the last one ended.
pub fn replace_progress(inside: impl AsFd) -> io::Result<ReplaceProgress> {
    let mut args = ReplaceArgs { command: REPLACE_STATUS, ..ReplaceArgs::new_zeroed() };
    call::update::<DEV_REPLACE, _>(inside, &mut args)?;
    let status = ReplaceStatusArgs::read_from_prefix(args.start.as_bytes());
    Ok(status.expect("the union is longer").0)
}

/// Gives up a replace. Returns whether there was one.
pub fn cancel_replace(inside: impl AsFd) -> io::Result<bool> {
    let mut args = ReplaceArgs { command: REPLACE_CANCEL, ..ReplaceArgs::new_zeroed() };
    call::update::<DEV_REPLACE, _>(inside, &mut args)?;
    Ok(args.result != REPLACE_NOT_STARTED)
}
