//! Balancing a mounted file system.

use std::io;
use std::os::fd::AsFd;

use larder_format::item::{BalanceItem, DiskBalanceArgs, balance_flags};
use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::abi::{
    BALANCE_CANCEL, BALANCE_CANCEL_REQUESTED, BALANCE_CTL, BALANCE_PAUSE, BALANCE_PAUSE_REQUESTED,
    BALANCE_PROGRESS, BALANCE_RUNNING, BALANCE_V2, BalanceArgs, BalanceFilterArgs,
};
use crate::call;

/// A balance, and how far it is.
#[derive(Clone, Copy, Debug)]
pub struct BalanceRun {
    /// What it moves.
    pub item: BalanceItem,
    /// Block groups to move.
    pub expected: u64,
    /// Those that were looked at.
    pub considered: u64,
    /// Those that have moved.
    pub completed: u64,
    /// Whether it goes on now.
    pub is_running: bool,
    /// Whether it was asked to pause.
    pub is_pause_requested: bool,
    /// Whether it was asked to end.
    pub is_cancel_requested: bool,
}

/// Balances. Returns when that has ended, with how far it came: `ECANCELED` if it was paused or
/// cancelled, `ENOSPC` if block groups found no room, `EINPROGRESS` if another has not ended.
pub fn balance(inside: impl AsFd, item: &BalanceItem) -> (BalanceRun, io::Result<()>) {
    let mut args = args_of(item);
    let ended = call::update::<BALANCE_V2, _>(inside, &mut args);
    (args.run(), ended)
}

/// Goes on with a balance that was paused: `ENOTCONN` if there is none.
pub fn resume_balance(inside: impl AsFd) -> (BalanceRun, io::Result<()>) {
    let mut args = BalanceArgs { flags: balance_flags::RESUME, ..BalanceArgs::new_zeroed() };
    let ended = call::update::<BALANCE_V2, _>(inside, &mut args);
    (args.run(), ended)
}

/// The balance that has not ended, if there is one.
pub fn balance_status(inside: impl AsFd) -> io::Result<Option<BalanceRun>> {
    match call::read::<BALANCE_PROGRESS, BalanceArgs>(inside) {
        Ok(args) => Ok(Some(args.run())),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pauses the balance that goes on. Returns whether there was one.
pub fn pause_balance(inside: impl AsFd) -> io::Result<bool> {
    control(inside, BALANCE_PAUSE)
}

/// Ends a balance, whether it goes on or pauses. Returns whether there was one.
pub fn cancel_balance(inside: impl AsFd) -> io::Result<bool> {
    control(inside, BALANCE_CANCEL)
}

fn control(inside: impl AsFd, number: i32) -> io::Result<bool> {
    match call::number::<BALANCE_CTL>(inside, number) {
        Ok(()) => Ok(true),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The structure that asks for a balance.
fn args_of(item: &BalanceItem) -> BalanceArgs {
    BalanceArgs {
        flags: item.flags.get(),
        data: BalanceFilterArgs::from(&item.data),
        meta: BalanceFilterArgs::from(&item.meta),
        sys: BalanceFilterArgs::from(&item.sys),
        ..BalanceArgs::new_zeroed()
    }
}

impl BalanceArgs {
    /// What is asked for, as file systems keep it.
    pub fn item(&self) -> BalanceItem {
        let (data, meta, sys) = (self.data.stored(), self.meta.stored(), self.sys.stored());
        BalanceItem { flags: self.flags.into(), data, meta, sys, ..BalanceItem::nothing() }
    }

    /// The answer about a balance.
    pub fn of(run: &BalanceRun) -> Self {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        Self {
            state: bit(run.is_running, BALANCE_RUNNING)
                | bit(run.is_pause_requested, BALANCE_PAUSE_REQUESTED)
                | bit(run.is_cancel_requested, BALANCE_CANCEL_REQUESTED),
            expected: run.expected,
            considered: run.considered,
            completed: run.completed,
            ..args_of(&run.item)
        }
    }

    fn run(&self) -> BalanceRun {
        BalanceRun {
            item: self.item(),
            expected: self.expected,
            considered: self.considered,
            completed: self.completed,
            is_running: self.state & BALANCE_RUNNING != 0,
            is_pause_requested: self.state & BALANCE_PAUSE_REQUESTED != 0,
            is_cancel_requested: self.state & BALANCE_CANCEL_REQUESTED != 0,
        }
    }
}

impl From<&DiskBalanceArgs> for BalanceFilterArgs {
    fn from(stored: &DiskBalanceArgs) -> Self {
        Self {
            profiles: stored.profiles.get(),
            usage: stored.usage.get(),
            devid: stored.devid.get(),
            pstart: stored.pstart.get(),
            pend: stored.pend.get(),
            vstart: stored.vstart.get(),
            vend: stored.vend.get(),
            target: stored.target.get(),
            flags: stored.flags.get(),
            limit: stored.limit.get(),
            stripes_min: stored.stripes_min.get(),
            stripes_max: stored.stripes_max.get(),
            unused: [0; 6],
        }
    }
}

impl BalanceFilterArgs {
    fn stored(&self) -> DiskBalanceArgs {
        DiskBalanceArgs {
            profiles: self.profiles.into(),
            usage: self.usage.into(),
            devid: self.devid.into(),
            pstart: self.pstart.into(),
            pend: self.pend.into(),
            vstart: self.vstart.into(),
            vend: self.vend.into(),
            target: self.target.into(),
            flags: self.flags.into(),
            limit: self.limit.into(),
            stripes_min: self.stripes_min.into(),
            stripes_max: self.stripes_max.into(),
            unused: [0_u64.into(); 6],
        }
    }
}
