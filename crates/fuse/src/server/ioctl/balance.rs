//! Balancing.
//!
//! # Invariants
//! - A balance ends with its caller: when that gets a signal or is killed, it is cancelled. What
//!   has moved stays where it is.
//! - How far it came goes with the error of a balance that ended early.

use larder::{BalanceEnd, BalanceState, BalanceStatus, ErrorKind, JobKind, balance_flags};
use larder_ioctl::BalanceRun;
use larder_ioctl::abi::{BALANCE_CANCEL, BALANCE_PAUSE, BalanceArgs};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::call::Ioctl;
use super::caller::while_caller_waits;
use crate::server::call::{Outcome, failed};

pub(super) fn balance(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let asked: BalanceArgs = ioctl.input()?;
    let item = asked.item();
    let filesystem = &ioctl.server.filesystem;
    let cancel = || {
        let running = filesystem.jobs().running();
        let own = running.iter().filter(|job| job.kind() == JobKind::Balance);
        own.for_each(|job| job.cancel());
    };
    let work = || match asked.flags & balance_flags::RESUME {
        0 => filesystem.balance(&item, &|_| ()).map(Some),
        _ => filesystem.resume_balance(&|_| ()),
    };
    let ended = while_caller_waits(ioctl, &cancel, work)?.map_err(|error| match error.kind() {
        ErrorKind::InUse => Errno::INPROGRESS,
        _ => {
            tracing::error!("balance: {error}");
            failed(error)
        }
    })?;
    let balance = ended.ok_or(Errno::NOTCONN)?;
    ioctl.error = match balance.end {
        BalanceEnd::Finished if balance.done.without_room > 0 => Some(Errno::NOSPC),
        BalanceEnd::Finished => None,
        BalanceEnd::Paused | BalanceEnd::Cancelled => Some(Errno::CANCELED),
    };
    let progress = balance.done.progress;
    ioctl.output(&BalanceArgs::of(&BalanceRun {
        item,
        expected: progress.expected,
        considered: progress.considered,
        completed: progress.completed,
        is_running: false,
        is_pause_requested: balance.end == BalanceEnd::Paused,
        is_cancel_requested: balance.end == BalanceEnd::Cancelled,
    }))
}

pub(super) fn progress(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let status = ioctl.server.filesystem.balance_status().map_err(failed)?;
    let BalanceStatus { item, progress, state } = status.ok_or(Errno::NOTCONN)?;
    ioctl.output(&BalanceArgs::of(&BalanceRun {
        item,
        expected: progress.expected,
        considered: progress.considered,
        completed: progress.completed,
        is_running: state != BalanceState::Paused,
        is_pause_requested: state == BalanceState::PauseRequested,
        is_cancel_requested: state == BalanceState::CancelRequested,
    }))
}

/// Pauses or cancels: the request comes in an envelope.
pub(super) fn control(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let number: i32 = ioctl.input()?;
    let filesystem = &ioctl.server.filesystem;
    let was_there = match number {
        BALANCE_PAUSE => filesystem.pause_balance(),
        BALANCE_CANCEL => filesystem.cancel_balance(),
        _ => return Err(Errno::INVAL),
    };
    if was_there.map_err(failed)? { Ok(()) } else { Err(Errno::NOTCONN) }
}
