//! Scrubs of the devices.
//!
//! # Invariants
//! - A scrub ends with its caller: when that gets a signal or is killed, the job is cancelled.
//! - The counters come with the error of a scrub that ended early.

use larder::{ErrorKind, JobKind, ScrubEnd, ScrubFinding, ScrubOptions};
use larder_ioctl::abi::{SCRUB_READ_ONLY, SET_SCRUB_LIMIT, ScrubArgs, ScrubLimitArgs};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::call::Ioctl;
use super::caller::while_caller_waits;
use crate::scrubbed::scrub_progress;
use crate::server::call::{Outcome, failed};

pub(super) fn scrub(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let asked: ScrubArgs = ioctl.input()?;
    if asked.flags & !SCRUB_READ_ONLY != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let read_only = asked.flags & SCRUB_READ_ONLY != 0;
    if !read_only {
        ioctl.check_writable()?;
    }
    let filesystem = &ioctl.server.filesystem;
    let found = |finding: ScrubFinding| tracing::warn!("scrub: {finding}");
    let options = ScrubOptions { read_only, start: asked.start, found: Some(&found) };
    let cancel = || cancel_device(ioctl, asked.devid);
    let work = || filesystem.scrub_device(asked.devid, &options);
    let scrubbed =
        while_caller_waits(ioctl, &cancel, work)?.map_err(|error| match error.kind() {
            ErrorKind::InUse => Errno::INPROGRESS,
            _ => failed(error),
        })?;
    ioctl.error = match scrubbed.end {
        ScrubEnd::Finished => None,
        ScrubEnd::Cancelled => Some(Errno::CANCELED),
        ScrubEnd::NoDevice => Some(Errno::NODEV),
        ScrubEnd::Failed(error) => {
            tracing::error!("scrub of device {}: {error}", asked.devid);
            Some(failed(error))
        }
    };
    ioctl.output(&ScrubArgs { progress: scrub_progress(&scrubbed.counters), ..asked })
}

fn cancel_device(ioctl: &Ioctl<'_>, device: u64) {
    let running = ioctl.server.filesystem.jobs().running();
    let own = running.iter().filter(|job| job.kind() == JobKind::Scrub { device });
    own.for_each(|job| job.cancel());
}

pub(super) fn cancel(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let running = ioctl.server.filesystem.jobs().running();
    let scrubs = running.iter().filter(|job| matches!(job.kind(), JobKind::Scrub { .. }));
    match scrubs.map(|job| job.cancel()).count() {
        0 => Err(Errno::NOTCONN),
        _ => Ok(()),
    }
}

pub(super) fn progress(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let asked: ScrubArgs = ioctl.input()?;
    let filesystem = &ioctl.server.filesystem;
    let Some(now) = filesystem.scrub_progress(asked.devid) else {
        let is_there = filesystem.devices().iter().any(|device| device.id == asked.devid);
        return Err(if is_there { Errno::NOTCONN } else { Errno::NODEV });
    };
    ioctl.output(&ScrubArgs { progress: scrub_progress(&now), ..asked })
}

/// Returns the limit of a device, and sets it on demand.
pub(super) fn limit(ioctl: &mut Ioctl<'_>) -> Outcome {
    let asked: ScrubLimitArgs = ioctl.input()?;
    let filesystem = &ioctl.server.filesystem;
    if !filesystem.devices().iter().any(|device| device.id == asked.devid) {
        return Err(Errno::NODEV);
    }
    if asked.flags & SET_SCRUB_LIMIT != 0 {
        ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
        filesystem.set_scrub_limit(asked.devid, Some(asked.limit).filter(|limit| *limit > 0));
    }
    let limit = filesystem.scrub_limit(asked.devid).unwrap_or(0);
    ioctl.output(&ScrubLimitArgs { limit, ..asked })
}
