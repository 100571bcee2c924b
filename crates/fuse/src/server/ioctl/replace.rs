//! A device is replaced by another.
//!
//! # Invariants
//! - The work ends with its caller: when that gets a signal or is killed, the replace is
//!   interrupted, and can be resumed.

use larder::{JobKind, ReplaceState, Replacement};
use larder_ioctl::abi::{
    REPLACE_ALREADY_STARTED, REPLACE_CANCEL, REPLACE_NOT_STARTED, REPLACE_START, REPLACE_STATUS,
    ReplaceArgs, ReplaceStart, ReplaceStatusArgs,
};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::{FromZeros, IntoBytes};

use super::call::{Ioctl, text};
use super::claim::claim;
use super::devices::work;
use crate::server::call::{Outcome, failed};

pub(super) fn replace(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let mut args: ReplaceArgs = ioctl.input()?;
    args.result = 0;
    match args.command {
        REPLACE_START => start(ioctl, &mut args)?,
        REPLACE_STATUS => args.start = status(ioctl)?,
        REPLACE_CANCEL => {
            ioctl.check_writable()?;
            let was_there = ioctl.server.filesystem.cancel_replace().map_err(failed)?;
            args.result = if was_there { 0 } else { REPLACE_NOT_STARTED };
        }
        _ => return Err(Errno::INVAL),
    }
    ioctl.output(&args)
}

fn start(ioctl: &mut Ioctl<'_>, args: &mut ReplaceArgs) -> Outcome {
    ioctl.check_writable()?;
    let server = ioctl.server;
    let filesystem = &server.filesystem;
    let target = text(&args.start.target_name);
    let status = filesystem.replace_status().map_err(failed)?;
    let is_unfinished = matches!(status.state, ReplaceState::Started | ReplaceState::Suspended);
    if target.is_empty() {
        if status.state != ReplaceState::Suspended {
            return Err(Errno::INVAL);
        }
        let job = JobKind::ReplaceDevice { device: status.device };
        return work(ioctl, job, || filesystem.resume_replace(&|_| ()));
    }
    if is_unfinished {
        args.result = REPLACE_ALREADY_STARTED;
        return Ok(());
    }
    let name = text(&args.start.source_name);
    let is_it = |device: &&larder::DeviceInfo| match args.start.source {
        0 => device.name.as_ref().is_some_and(|own| own.as_bytes() == name),
        id => device.id == id,
    };
    let devices = filesystem.devices();
    let devid = devices.iter().find(is_it).ok_or(Errno::NOENT)?.id;
    let claimed = claim(ioctl.call.caller.thread.pid(), target)?;
    let wanted = Replacement {
        devid,
        target: claimed.device().clone(),
        avoid_source: args.start.avoids_source != 0,
    };
    let job = JobKind::ReplaceDevice { device: devid };
    work(ioctl, job, || filesystem.replace_device(&wanted, &|_| ()))?;
    claimed.keep();
    Ok(())
}

fn status(ioctl: &Ioctl<'_>) -> Result<ReplaceStart, Errno> {
    let status = ioctl.server.filesystem.replace_status().map_err(failed)?;
    let shown = ReplaceStatusArgs {
        state: match status.state {
            ReplaceState::NeverStarted => 0,
            ReplaceState::Started => 1,
            ReplaceState::Finished => 2,
            ReplaceState::Cancelled => 3,
            ReplaceState::Suspended => 4,
        },
        permille: status.permille,
        started: status.started,
        stopped: status.stopped,
        write_errors: status.write_errors,
        read_errors: status.read_errors,
    };
    let mut union = ReplaceStart::new_zeroed();
    let bytes = shown.as_bytes();
    union.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    Ok(union)
}
