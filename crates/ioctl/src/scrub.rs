//! Scrubbing the devices of a mounted file system.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::abi::{
    SCRUB, SCRUB_CANCEL, SCRUB_LIMIT, SCRUB_PROGRESS, SCRUB_READ_ONLY, SET_SCRUB_LIMIT, ScrubArgs,
    ScrubLimitArgs, ScrubProgressArgs,
};
use crate::call;

/// What a scrub has met so far.
pub type ScrubProgress = ScrubProgressArgs;

/// Scrubs the device with id `devid` from the address `start` of it on. Returns when that has ended,
/// with what was met until then: `ECANCELED` if it was cancelled, `EINPROGRESS` if the device is
/// being scrubbed, `ENODEV` if it is missing.
pub fn scrub(
    inside: impl AsFd,
    devid: u64,
    start: u64,
    read_only: bool,
) -> (ScrubProgress, io::Result<()>) {
    let flags = if read_only { SCRUB_READ_ONLY } else { 0 };
    let mut args = ScrubArgs { devid, start, end: u64::MAX, flags, ..ScrubArgs::new_zeroed() };
    let ended = call::update::<SCRUB, _>(inside, &mut args);
    (args.progress, ended)
}

/// What the scrub of a device has met so far; `None` if it is not being scrubbed.
pub fn scrub_progress(inside: impl AsFd, devid: u64) -> io::Result<Option<ScrubProgress>> {
    let mut args = ScrubArgs { devid, ..ScrubArgs::new_zeroed() };
    match call::update::<SCRUB_PROGRESS, _>(inside, &mut args) {
        Ok(()) => Ok(Some(args.progress)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOTCONN | Errno::NODEV) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Cancels all scrubs of the file system. Returns whether there was one.
pub fn cancel_scrub(inside: impl AsFd) -> io::Result<bool> {
    match call::plain::<SCRUB_CANCEL>(inside) {
        Ok(()) => Ok(true),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The most bytes of a device of a Larder mount that a scrub reads in a second; 0 for no limit.
pub fn scrub_limit(inside: impl AsFd, devid: u64) -> io::Result<u64> {
    let mut args = ScrubLimitArgs { devid, ..ScrubLimitArgs::new_zeroed() };
    call::update::<SCRUB_LIMIT, _>(inside, &mut args)?;
    Ok(args.limit)
}

/// Sets the [limit](scrub_limit), also of a scrub that goes on.
pub fn set_scrub_limit(inside: impl AsFd, devid: u64, limit: u64) -> io::Result<()> {
    let flags = SET_SCRUB_LIMIT;
    let mut args = ScrubLimitArgs { devid, flags, limit, ..ScrubLimitArgs::new_zeroed() };
    call::update::<SCRUB_LIMIT, _>(inside, &mut args)
}
