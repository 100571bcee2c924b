//! Durable states that readers keep, while the file system goes on changing.
//!
//! # Invariants
//! - While a state is kept, nothing that a later commit freed is allocated or discarded, and chunks
//!   that it removed keep their place on the devices. So all that the state leads to stays as it is.
//! - A kept state never costs a writer space. It is given up before a caller gets ENOSPC, before
//!   commits run short of the global reserve, and before its list takes much memory.
//! - `round` rises before a thread can allocate any space of the states that are given up. So a read
//!   that ends in the round in which its state began saw that state.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use larder_locks::RankedMutex;
use larder_locks::rank::WITHHELD;

use super::{Pinned, Space};
use crate::error::Result;

/// The most ranges that are withheld; each takes 16 bytes.
const MOST_RANGES: usize = 1 << 20;

/// The states that are kept.
#[derive(Debug, Default)]
pub(super) struct KeptStates {
    withheld: RankedMutex<Withheld, WITHHELD>,
    /// Rises when all states are given up.
    round: AtomicU64,
}

/// The space that kept states withhold.
#[derive(Debug, Default)]
struct Withheld {
    /// Readers of this round.
    readers: usize,
    freed: Pinned,
}

/// Keeps a durable state until it is dropped, or until the space is needed.
#[derive(Debug)]
pub(crate) struct Keeping {
    space: Arc<Space>,
    round: u64,
}

impl Keeping {
    /// Keeps the last durable state. The caller keeps commits from beginning or ending meanwhile.
    pub(crate) fn new(space: &Arc<Space>) -> Self {
        Self { space: space.clone(), round: space.begin_keeping() }
    }

    /// Whether the state was not given up.
    pub(crate) fn is_kept(&self) -> bool {
        self.space.is_kept(self.round)
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Err(error) = self.space.end_keeping(self.round) {
            tracing::error!(
                "space that a reader had kept stays taken until the next mount: {error}"
            );
        }
    }
}

impl Space {
    /// Keeps the last durable state until [`end_keeping`](Self::end_keeping), or until the space is
    /// needed. The caller keeps commits from beginning or ending meanwhile.
    fn begin_keeping(&self) -> u64 {
        let mut withheld = self.kept.withheld.lock();
        withheld.readers += 1;
        self.kept.round.load(SeqCst)
    }

    /// Whether a state that a reader keeps since `round` was not given up.
    fn is_kept(&self, round: u64) -> bool {
        self.kept.round.load(SeqCst) == round
    }

    /// A reader that began in `round` needs its state no more.
    fn end_keeping(&self, round: u64) -> Result<()> {
        let mut withheld = self.kept.withheld.lock();
        if !self.is_kept(round) {
            return Ok(());
        }
        withheld.readers -= 1;
        if withheld.readers > 0 {
            return Ok(());
        }
        let freed = mem::take(&mut withheld.freed);
        drop(withheld);
        self.release(freed)
    }

    /// Gives all kept states up, and releases the space that they withheld.
    pub(crate) fn give_up_kept_states(&self) -> Result<()> {
        let mut withheld = self.kept.withheld.lock();
        if withheld.readers == 0 {
            return Ok(());
        }
        self.kept.round.fetch_add(1, SeqCst);
        let Withheld { freed, .. } = mem::take(&mut *withheld);
        drop(withheld);
        tracing::info!("a reader's state was given up, since its space is needed");
        self.release(freed)
    }

    /// Withholds what a commit freed, if a state is kept. Returns what nobody keeps.
    pub(super) fn withhold(&self, mut freed: Pinned) -> Result<Pinned> {
        let mut withheld = self.kept.withheld.lock();
        if withheld.readers == 0 {
            return Ok(freed);
        }
        withheld.freed.chunks.append(&mut freed.chunks);
        withheld.freed.ranges.append(&mut freed.ranges);
        if withheld.freed.ranges.len() > MOST_RANGES {
            self.join_neighbours(&mut withheld.freed.ranges);
        }
        let is_long = withheld.freed.ranges.len() > MOST_RANGES;
        drop(withheld);
        if is_long || self.is_short_for_commits() {
            self.give_up_kept_states()?;
        }
        Ok(freed)
    }

    /// Makes one range of those that follow each other in a block group.
    fn join_neighbours(&self, ranges: &mut Vec<Range<u64>>) {
        let groups = self.groups.read();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let follows = before.end == next.start && !groups.contains_key(&next.start);
            if follows {
                before.end = next.end;
            }
            follows
        });
    }
}
