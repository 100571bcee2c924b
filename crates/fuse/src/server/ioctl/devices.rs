//! Devices that come and go, and that get other sizes.
//!
//! # Invariants
//! - The work ends with its caller: when that gets a signal or is killed, the job is cancelled. What
//!   has moved stays where it is.

use larder::{DeviceInfo, ErrorKind, JobKind, Moved};
use larder_ioctl::abi::{DEVICE_SPEC_BY_ID, VolArgs, VolArgsV2};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::call::{Ioctl, text};
use super::caller::while_caller_waits;
use super::claim::claim;
use crate::server::call::{Outcome, failed};

/// The answer when other work on the devices is in progress
/// (`BTRFS_ERROR_DEV_EXCL_RUN_IN_PROGRESS`).
const OTHER_WORK: i32 = 8;
/// That if the device is the only one (`BTRFS_ERROR_DEV_ONLY_WRITABLE`).
const ONLY_ONE: i32 = 7;

pub(super) fn resize(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let asked: VolArgs = ioctl.input()?;
    let asked = std::str::from_utf8(text(&asked.name)).map_err(|_| Errno::INVAL)?;
    let (devid, size) = asked.split_once(':').unwrap_or(("1", asked));
    let devid: u64 = devid.parse().map_err(|_| Errno::INVAL)?;
    let job = JobKind::ResizeDevice { device: devid };
    if size == "cancel" {
        return cancel(ioctl, |other| other == job);
    }
    let server = ioctl.server;
    let filesystem = &server.filesystem;
    let device = filesystem.devices().into_iter().find(|device| device.id == devid);
    let device = device.ok_or(Errno::NODEV)?;
    let room = filesystem.device_room(devid).ok_or(Errno::NODEV)?;
    if size == "min" {
        return work(ioctl, job, || Ok(filesystem.minimize_device(devid, &|_| ())?.1));
    }
    let number = |digits: &str| parse_bytes(digits).ok_or(Errno::INVAL);
    let wanted = match size.as_bytes().first() {
        _ if size == "max" => room,
        Some(b'+') => device.total_bytes.checked_add(number(&size[1..])?).ok_or(Errno::FBIG)?,
        Some(b'-') => device.total_bytes.checked_sub(number(&size[1..])?).ok_or(Errno::INVAL)?,
        _ => number(size)?,
    };
    if wanted > room {
        return Err(Errno::FBIG);
    }
    work(ioctl, job, || filesystem.resize_device(devid, wanted, &|_| ()))
}

pub(super) fn add(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let asked: VolArgs = ioctl.input()?;
    let claimed = claim(ioctl.call.caller.thread.pid(), text(&asked.name))?;
    match ioctl.server.filesystem.add_device(claimed.device().clone()) {
        Ok(_) => claimed.keep(),
        Err(error) if error.kind() == ErrorKind::InUse => ioctl.answer = OTHER_WORK,
        Err(error) => {
            tracing::error!("addition of a device: {error}");
            return Err(failed(error));
        }
    }
    Ok(())
}

pub(super) fn remove(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let asked: VolArgsV2 = ioctl.input()?;
    if asked.flags & !DEVICE_SPEC_BY_ID != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let devices = ioctl.server.filesystem.devices();
    let devid = if asked.flags & DEVICE_SPEC_BY_ID != 0 {
        u64::from_ne_bytes(*asked.name.first_chunk().expect("a name is longer"))
    } else if text(&asked.name) == b"cancel" {
        return cancel(ioctl, |job| matches!(job, JobKind::RemoveDevice { .. }));
    } else {
        let name = text(&asked.name);
        let is_it = |device: &&DeviceInfo| match &device.name {
            Some(own) => own.as_bytes() == name,
            None => name == b"missing",
        };
        devices.iter().find(is_it).ok_or(Errno::NOENT)?.id
    };
    if !devices.iter().any(|device| device.id == devid) {
        return Err(Errno::NODEV);
    }
    if devices.len() == 1 {
        ioctl.answer = ONLY_ONE;
        return Ok(());
    }
    let server = ioctl.server;
    let filesystem = &server.filesystem;
    let job = JobKind::RemoveDevice { device: devid };
    work(ioctl, job, || filesystem.remove_device(devid, &|_| ()))
}

/// Gives block groups the copies that they lack.
pub(super) fn complete(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let filesystem = &ioctl.server.filesystem;
    work(ioctl, JobKind::Complete, || filesystem.complete_redundancy(&|_| ()))?;
    // Nothing but an error can be answered without a structure.
    if ioctl.answer == OTHER_WORK { Err(Errno::INPROGRESS) } else { Ok(()) }
}

/// Does work as this job, and cancels it once the caller waits no more.
pub(super) fn work(
    ioctl: &mut Ioctl<'_>,
    job: JobKind,
    work: impl FnOnce() -> larder::Result<Moved>,
) -> Outcome {
    let server = ioctl.server;
    let end = || {
        let running = server.filesystem.jobs().running();
        running.iter().filter(|other| other.kind() == job).for_each(|job| job.cancel());
    };
    match while_caller_waits(ioctl, &end, work)? {
        Ok(moved) if moved.damaged_bytes + moved.unreadable_bytes > 0 => Err(Errno::IO),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::InUse => {
            ioctl.answer = OTHER_WORK;
            Ok(())
        }
        Err(error) => {
            tracing::error!("{job}: {error}");
            Err(failed(error))
        }
    }
}

/// Cancels the job for which `is_it` holds.
fn cancel(ioctl: &Ioctl<'_>, is_it: impl Fn(JobKind) -> bool) -> Outcome {
    let running = ioctl.server.filesystem.jobs().running();
    match running.iter().filter(|job| is_it(job.kind())).map(|job| job.cancel()).count() {
        0 => Err(Errno::NOTCONN),
        _ => Ok(()),
    }
}

/// Reads a number with a letter for a power of 1024 after it, or none.
fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, power) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        None => (text, 0),
        Some(at) if at + 1 == text.len() => {
            (&text[..at], 1 + "KMGTPE".find(text[at..].to_ascii_uppercase().as_str())?)
        }
        Some(_) => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power as u32)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_the_kernel_reads_them() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("3g"), Some(3 << 30));
        for bad in ["", "k", "3x", "3gb", "-1", "99999999999999999999", "16e"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
