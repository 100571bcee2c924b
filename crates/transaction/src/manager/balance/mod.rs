//! Balancing: block groups are emptied one after the other, or converted to other profiles.
//!
//! # Invariants
//! - The item in the root tree is there from before the first group moves until the balance has
//!   ended or was cancelled: whoever opens the file system after a crash goes on with it.
//! - Each group is a step of its own, and each leaves a sound file system. A group that finds no
//!   room stays, and the next one has its turn.
//! - No other work on devices goes on meanwhile.

mod choice;
mod filters;

use std::ops::ControlFlow;

use larder_format::item::BalanceItem;
use larder_format::{SpaceKind, read_exact_item};
use zerocopy::IntoBytes;

use self::filters::target;
use super::TransactionManager;
use super::devices::Conversion;
use super::devices::Targets;
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::space::Priority;

pub use choice::{Chosen, choose};

/// How far a balance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceProgress {
    /// Block groups to move, as far as it is known.
    pub expected: u64,
    /// Those that were looked at.
    pub considered: u64,
    /// Those that have moved.
    pub completed: u64,
    /// Bytes that have moved.
    pub done_bytes: u64,
    /// Bytes to move.
    pub total_bytes: u64,
}

/// What a balance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balanced {
    /// How far it came.
    pub progress: BalanceProgress,
    /// What was copied.
    pub moved: Moved,
    /// Block groups that found no room, and stayed.
    pub without_room: u64,
}

/// Is called in the thread that works with how far it has come. Says whether it goes on.
pub type TellBalance<'t> = dyn Fn(&BalanceProgress) -> ControlFlow<()> + 't;

impl TransactionManager {
    /// The balance that was begun and has not ended; one that runs, or was interrupted.
    pub fn balance_item(&self) -> Result<Option<BalanceItem>> {
        let tree = self.trees.root();
        let Some(data) = tree.get(BalanceItem::KEY)? else { return Ok(None) };
        let wrong = |problem| Error::item(tree.id(), BalanceItem::KEY, problem);
        Ok(Some(*read_exact_item::<BalanceItem>(&data).map_err(wrong)?))
    }

    /// Notes that a balance has begun, or, with `None`, that it has ended; and commits.
    pub fn set_balance_item(&self, item: Option<&BalanceItem>) -> Result<()> {
        let handle = self.start(1, Priority::Cleaning)?;
        let tree = self.trees.root();
        let changed = match item {
            Some(item) => tree.put(BalanceItem::KEY, item.as_bytes()).map_err(Error::from),
            None => tree.delete(BalanceItem::KEY).map(drop).map_err(Error::from),
        };
        changed.inspect_err(|error| self.abort(error.clone()))?;
        handle.end()?;
        self.commit().map(drop)
    }

    /// The block groups that a balance would move now, in their order.
    ///
    /// # Errors
    /// Those of [`choose`].
    pub fn chosen_for_balance(&self, item: &BalanceItem) -> Result<Vec<Chosen>> {
        let groups = self.space().groups();
        let groups: Vec<_> = groups.iter().map(|group| (group.chunk(), group.used())).collect();
        let devices = self.volume().devices();
        let usable = devices.iter().filter(|device| device.takes_chunks());
        choose(item, &groups, usable.count())
    }

    /// Moves the block groups that the filters of `item` let pass. Others may use the file system
    /// meanwhile. Calls `tell` in this thread with the progress.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `tell` says so. What has moved stays where it is, whatever fails.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn balance(&self, item: &BalanceItem, tell: &TellBalance<'_>) -> Result<Balanced> {
        let _turn = self.device_work.try_lock().ok_or(Error::OtherWork)?;
        let chosen = self.chosen_for_balance(item)?;
        let of = |kind| target(item, kind);
        let (data, metadata, system) =
            (of(SpaceKind::Data), of(SpaceKind::Metadata), of(SpaceKind::System));
        let _targets = Targets::new(self, Conversion { data, metadata, system });
        let mut done = Balanced::default();
        done.progress.expected = chosen.len() as u64;
        done.progress.total_bytes = chosen.iter().map(|group| group.used_bytes).sum();
        let starts = self.space().groups().into_iter().rev().map(|group| group.start());
        for start in starts.collect::<Vec<_>>() {
            done.progress.considered += 1;
            go_on(tell(&done.progress))?;
            let Some(group) = chosen.iter().find(|group| group.start == start.0) else { continue };
            match self.balance_group(group, &mut done, tell) {
                Ok(()) => done.progress.completed += 1,
                Err(error @ (Error::NoSpace { .. } | Error::NoPlace { .. })) => {
                    tracing::warn!("the block group at {start} stays: {error}");
                    done.without_room += 1;
                }
                Err(error) => return Err(error),
            }
        }
        go_on(tell(&done.progress))?;
        Ok(done)
    }

    fn balance_group(
        &self,
        group: &Chosen,
        done: &mut Balanced,
        tell: &TellBalance<'_>,
    ) -> Result<()> {
        let progress = &mut done.progress;
        let mut advance = |bytes: u64| {
            progress.done_bytes = (progress.done_bytes + bytes).min(progress.total_bytes);
            go_on(tell(progress))
        };
        let start = larder_format::Logical(group.start);
        let moved = match group.target.filter(|target| *target != group.profile) {
            Some(target) => Some(self.move_chunk(start, target, |_| false, &mut advance)?),
            None => self.empty_one_group(start, &mut advance)?.map(|emptied| emptied.moved),
        };
        done.moved.add(&moved.unwrap_or_default());
        Ok(())
    }
}

fn go_on(told: ControlFlow<()>) -> Result<()> {
    match told {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled),
    }
}
