//! Balancing: block groups are emptied, so that their room is free for others, or get other
//! profiles.

use std::cell::Cell;
use std::ops::ControlFlow;

use larder_format::item::BalanceItem;
use larder_jobs::JobKind;
use larder_transaction::{BalanceProgress, Balanced, Chosen, Error as EngineError, choose};

use crate::core::balances::Wish;
use crate::error::{Error, Result};
use crate::filesystem::space::BlockGroup;
use crate::handle::filesystem::Filesystem;

/// What a balance did, and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    /// What it did.
    pub done: Balanced,
    /// How it ended.
    pub end: BalanceEnd,
}

/// How a balance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceEnd {
    /// It has looked at all block groups. Some may have stayed, for want of room.
    Finished,
    /// It was [paused](Filesystem::pause_balance), and can be resumed.
    Paused,
    /// It was [cancelled](Filesystem::cancel_balance).
    Cancelled,
}

/// A balance that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct BalanceStatus {
    /// What it moves.
    pub item: BalanceItem,
    /// How far it is, since it was begun or resumed while the file system is open.
    pub progress: BalanceProgress,
    /// What it does now.
    pub state: BalanceState,
}

/// What a balance does that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceState {
    /// It goes on.
    Running,
    /// It is about to pause.
    PauseRequested,
    /// It is about to end.
    CancelRequested,
    /// It was paused, or interrupted.
    Paused,
}

impl Filesystem {
    /// Balances: moves what the filters of `wanted` let pass, which is a structure of the format.
    /// What snapshots and reflinks share stays shared. It is a [job](crate::Jobs). Other threads
    /// may use the file system meanwhile. Calls `tell` in this thread with the progress.
    ///
    /// The file system remembers a balance until it has ended: after a crash it can be
    /// [resumed](Self::resume_balance), by the kernel too.
    ///
    /// # Errors
    /// With [`InUse`](crate::ErrorKind::InUse) if another balance has not ended, or other work on
    /// devices goes on. A block group that finds no room stays, and
    /// [counts](Balanced::without_room).
    pub fn balance(
        &self,
        wanted: &BalanceItem,
        tell: &dyn Fn(&BalanceProgress),
    ) -> Result<Balance> {
        let manager = self.writer()?.manager();
        if manager.balance_item()?.is_some() {
            return Err(Error::PausedBalance);
        }
        self.run_balance(wanted, tell)
    }

    /// Goes on with a balance that was paused or interrupted, also one of the kernel. `None` if
    /// there is none.
    ///
    /// # Errors
    /// As [`balance`](Self::balance).
    pub fn resume_balance(&self, tell: &dyn Fn(&BalanceProgress)) -> Result<Option<Balance>> {
        let manager = self.writer()?.manager();
        let Some(item) = manager.balance_item()? else { return Ok(None) };
        self.run_balance(&item.resumed(), tell).map(Some)
    }

    /// Ends the balance that goes on, so that it can be resumed. Returns whether there was one.
    pub fn pause_balance(&self) -> Result<bool> {
        Ok(self.end_balance(Wish::Pause))
    }

    /// Asks the balance that goes on to pause soon, and does not wait for that: the thread that
    /// balances may call it.
    pub fn ask_balance_to_pause(&self) {
        self.ask_balance(Wish::Pause);
    }

    /// Ends a balance, whether it goes on or pauses. Returns whether there was one.
    pub fn cancel_balance(&self) -> Result<bool> {
        if self.end_balance(Wish::Cancel) {
            return Ok(true);
        }
        let manager = self.writer()?.manager();
        let has_one = manager.balance_item()?.is_some();
        if has_one {
            manager.set_balance_item(None)?;
        }
        Ok(has_one)
    }

    /// The balance that has not ended, if there is one.
    pub fn balance_status(&self) -> Result<Option<BalanceStatus>> {
        if let Some(running) = self.core().balances().running() {
            let state = match running.wish {
                None => BalanceState::Running,
                Some(Wish::Pause) => BalanceState::PauseRequested,
                Some(Wish::Cancel) => BalanceState::CancelRequested,
            };
            return Ok(Some(BalanceStatus {
                item: running.item,
                progress: running.progress,
                state,
            }));
        }
        let key = BalanceItem::KEY;
        let found = self.root_tree().get(key)?;
        let Some(data) = found else { return Ok(None) };
        let item = *larder_format::read_exact_item::<BalanceItem>(&data)
            .map_err(|problem| Error::Item { tree: self.root_tree().root().tree, key, problem })?;
        let (progress, state) = (self.core().balances().last(), BalanceState::Paused);
        Ok(Some(BalanceStatus { item, progress, state }))
    }

    /// The block groups that a balance would move now.
    ///
    /// # Errors
    /// If there are too few devices for a profile that is wanted.
    pub fn plan_balance(&self, wanted: &BalanceItem) -> Result<Vec<Chosen>> {
        let groups = self.block_groups()?.into_iter();
        let with_chunk = |group: BlockGroup| {
            self.volume().chunk_at(group.logical).map(|chunk| (chunk, group.used_bytes))
        };
        let groups: Vec<_> = groups.filter_map(with_chunk).collect();
        let devices = self.devices();
        let usable = devices.iter().filter(|device| device.name.is_some() && !device.is_seed);
        Ok(choose(wanted, &groups, usable.count())?)
    }

    fn end_balance(&self, wish: Wish) -> bool {
        let is_there = self.ask_balance(wish);
        self.core().balances().wait();
        is_there
    }

    fn ask_balance(&self, wish: Wish) -> bool {
        let is_there = self.core().balances().ask(wish);
        let running = self.jobs().running();
        let balances = running.iter().filter(|job| is_there && job.kind() == JobKind::Balance);
        balances.for_each(|job| job.cancel());
        is_there
    }

    fn run_balance(&self, item: &BalanceItem, tell: &dyn Fn(&BalanceProgress)) -> Result<Balance> {
        let manager = self.writer()?.manager();
        let job = self.jobs().begin(JobKind::Balance, 0)?;
        let shown = self.core().balances().begin(item);
        // Refused before it is noted.
        manager.chosen_for_balance(item)?;
        manager.set_balance_item(Some(item))?;
        let (done_bytes, last) = (Cell::new(0), Cell::new(BalanceProgress::default()));
        let went_on = |now: &BalanceProgress| {
            let more = now.done_bytes - done_bytes.replace(now.done_bytes);
            job.expect(now.total_bytes);
            job.advance(more);
            shown.note(now);
            last.set(*now);
            tell(now);
            match job.step(more) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let balanced = manager.balance(item, &went_on);
        let (done, end) = match balanced {
            Ok(done) => (done, BalanceEnd::Finished),
            Err(EngineError::Cancelled) => {
                let end = match shown.wish() {
                    Some(Wish::Pause) => BalanceEnd::Paused,
                    _ => BalanceEnd::Cancelled,
                };
                (Balanced { progress: last.get(), ..Balanced::default() }, end)
            }
            Err(error) => {
                // As the kernel does: the error comes again if it is begun again.
                if manager.aborted().is_none() {
                    manager.set_balance_item(None)?;
                }
                return Err(error.into());
            }
        };
        if end != BalanceEnd::Paused {
            manager.set_balance_item(None)?;
        }
        Ok(Balance { done, end })
    }
}
