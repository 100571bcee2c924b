//! Edits: every change to the contents of the index is one splice of one block.
//!
//! Invariants
//! - A splice is published by one exchange of the block pointer; that exchange is the moment at
//!   which the edit happens. A thread that loses the exchange plans again from the new block.
//! - A splice never changes where a tile that is not the first begins, which is where its first
//!   entry begins. An edit that would do so, or that needs entries of several tiles, first
//!   *gathers* them: under block locks, entries move to the node on their left until one block
//!   holds all of them. Moving changes no content, so readers see the edit in one step even then.

use std::ops::Range;

use crossbeam_epoch::{self as epoch, Guard};
use smallvec::SmallVec;

use crate::Value;
use crate::block::{BlockRef, Builder, OwnedBlock, Piece, length};
use crate::node::{BlockLock, NodeRef};
use crate::reclaim::{self, retire_block};
use crate::search::{Path, Spot, locate_near};
use crate::skip_list::SkipList;
use crate::sync::Wait;

/// The entries that a splice puts in place of others. Three suffice to split an entry around a new
/// one.
pub(crate) type Pieces<V> = SmallVec<[Piece<V>; 3]>;

/// The change that an edit plans for the block that it sees. The index may ask for it again.
pub(crate) enum Plan<V, R> {
    /// Nothing changes.
    Keep(R),
    /// The entries `replace` give way to `with`.
    Splice { replace: Range<usize>, with: Pieces<V>, result: R },
    /// The edit concerns all entries that begin below this address; the tile ends before it.
    Reach(u64),
}

/// A copy of `block` with the entries `replace` replaced by `with`, which leaves holes of up to
/// `largest` addresses, if that is known.
fn spliced<V: Value>(
    block: BlockRef<'_, V>,
    replace: &Range<usize>,
    with: Pieces<V>,
    largest: Option<u64>,
) -> OwnedBlock<V> {
    let len = block.len() - replace.len() + with.len();
    let mut builder = Builder::new(block.low()..block.high(), len);
    builder.extend(block, 0..replace.start);
    for piece in with {
        builder.push(piece);
    }
    builder.extend(block, replace.end..block.len());
    match largest {
        Some(largest) => builder.finish_with(largest),
        None => builder.finish(),
    }
}

/// Whether the tile of `block` would have to begin elsewhere.
fn moves_low<V>(block: BlockRef<'_, V>, replace: &Range<usize>, with: &Pieces<V>) -> bool {
    let is_first_tile = block.low() == 0;
    let start = with.first().map(|piece| piece.start);
    !is_first_tile && replace.start == 0 && start != Some(block.low())
}

/// The effects of a splice besides the entries: on sums, and on holes that get larger.
struct Effect {
    entries: i64,
    covered: i64,
    /// The largest hole in the block afterwards, unless it takes a look at all others to know.
    largest: Option<u64>,
    larger_holes: SmallVec<[Range<u64>; 2]>,
}

impl Effect {
    fn new<V>(block: BlockRef<'_, V>, replace: &Range<usize>, with: &Pieces<V>) -> Self {
        let removed: u64 = replace.clone().map(|index| block.end(index) - block.key(index)).sum();
        let added: u64 = with.iter().map(|piece| piece.end - piece.start).sum();
        let largest_before = block.largest_hole(replace.start..replace.end + 1);
        let mut largest_after = 0;
        let mut larger_holes = SmallVec::new();
        let mut start = block.hole_before(replace.start).start;
        let last = block.hole_before(replace.end).end;
        for (end, next) in
            with.iter().map(|piece| (piece.start, piece.end)).chain(std::iter::once((last, last)))
        {
            // A plan that overlaps its neighbours is caught when the block is built.
            let len = end.saturating_sub(start);
            largest_after = len.max(largest_after);
            if len > largest_before {
                larger_holes.push(start..end);
            }
            start = next;
        }
        let largest = match block.largest() {
            largest if largest_before < largest => Some(largest.max(largest_after)),
            largest if largest_after >= largest => Some(largest_after),
            _ => None,
        };
        Effect {
            largest,
            entries: with.len() as i64 - replace.len() as i64,
            covered: added.wrapping_sub(removed) as i64,
            larger_holes,
        }
    }
}

impl<V: Value, const KEYS: usize> SkipList<V, KEYS> {
    /// Edits the block whose tile holds `at`, as `plan` says.
    pub(crate) fn edit<R>(&self, at: u64, plan: impl FnMut(BlockRef<'_, V>) -> Plan<V, R>) -> R {
        let result = self.edit_pinned(at, plan, &epoch::pin());
        reclaim::relieve();
        result
    }

    fn edit_pinned<R>(
        &self,
        at: u64,
        mut plan: impl FnMut(BlockRef<'_, V>) -> Plan<V, R>,
        guard: &Guard,
    ) -> R {
        let path = self.path(at, guard);
        let mut spot = locate_near(path.at(0), at, guard);
        loop {
            match plan(spot.block) {
                Plan::Keep(result) => return result,
                Plan::Reach(until) => return self.edit_gathered(at, at..until, plan, guard),
                Plan::Splice { replace, with, result } => {
                    if moves_low(spot.block, &replace, &with) {
                        let until = spot.block.key(replace.end - 1) + 1;
                        let gathered = spot.block.low() - 1..until;
                        return self.edit_gathered(at, gathered, plan, guard);
                    }
                    if spot.word.is_locked() {
                        self.wait_for_unlock(spot.node);
                    } else if self.try_splice(&spot, Some(&path), &replace, with, guard) {
                        return result;
                    }
                }
            }
            spot = locate_near(spot.node, at, guard);
        }
    }

    /// Publishes a splice of `spot`; false when the block has changed since. `path` is that to
    /// `spot`, if there is one.
    pub(crate) fn try_splice<'g>(
        &self,
        spot: &Spot<'g, V>,
        path: Option<&Path<'g, V>>,
        replace: &Range<usize>,
        with: Pieces<V>,
        guard: &'g Guard,
    ) -> bool {
        let effect = Effect::new(spot.block, replace, &with);
        let new = spliced(spot.block, replace, with, effect.largest);
        let len = new.as_ref().len();
        let published = if len > KEYS {
            let lock = spot.node.try_publish_and_lock(spot.word, new);
            lock.map(|lock| self.split(lock, guard)).is_some()
        } else {
            spot.node.try_publish(spot.word, new)
        };
        if !published {
            self.stats.lost_exchange();
            return false;
        }
        retire_block(spot.block, guard);
        self.update_sums(spot.node, path, &effect, guard);
        if effect.entries < 0 && len < KEYS / 4 && spot.block.low() > 0 {
            self.merge_into_left(spot.node, spot.block.low(), guard);
        }
        true
    }

    /// Updates sums and bounds after a published splice.
    fn update_sums<'g>(
        &self,
        node: NodeRef<'g, V>,
        path: Option<&Path<'g, V>>,
        effect: &Effect,
        guard: &'g Guard,
    ) {
        self.stats.add(effect.entries, effect.covered);
        for hole in &effect.larger_holes {
            self.raise_bounds(node, path, hole.start, length(hole), guard);
        }
    }

    /// Edits the block whose tile holds `at`, after all entries that begin in `gathered` have been
    /// moved into it.
    fn edit_gathered<R>(
        &self,
        at: u64,
        gathered: Range<u64>,
        mut plan: impl FnMut(BlockRef<'_, V>) -> Plan<V, R>,
        guard: &Guard,
    ) -> R {
        // The plan gets the tile of `at`, wherever that begins by the time something is locked.
        let (mut from, mut until) = (gathered.start, gathered.end.max(at + 1));
        loop {
            let lock = self.lock_block(from, guard);
            let (replace, with, result) = loop {
                while lock.block(guard).high() < until {
                    self.absorb(&lock, until, guard);
                }
                match plan(lock.block(guard)) {
                    Plan::Keep(result) => {
                        self.split(lock, guard);
                        return result;
                    }
                    Plan::Reach(further) => until = until.max(further),
                    Plan::Splice { replace, with, result } => break (replace, with, result),
                }
            };
            let block = lock.block(guard);
            if moves_low(block, &replace, &with) {
                until = until.max(block.key(replace.end - 1) + 1);
                from = block.low() - 1;
                self.split(lock, guard);
                continue;
            }
            let effect = Effect::new(block, &replace, &with);
            let node = lock.node();
            lock.publish(spliced(block, &replace, with, effect.largest));
            retire_block(block, guard);
            self.split(lock, guard);
            self.update_sums(node, None, &effect, guard);
            return result;
        }
    }

    /// Takes the block lock of the node whose tile holds `point`.
    pub(crate) fn lock_block<'g>(&self, point: u64, guard: &'g Guard) -> BlockLock<'g, V> {
        let mut spot = self.locate(point, guard);
        loop {
            if spot.word.is_locked() {
                self.wait_for_unlock(spot.node);
            } else if let Some(lock) = spot.node.try_lock(spot.word) {
                return lock;
            }
            spot = locate_near(spot.node, point, guard);
        }
    }

    /// Waits until no thread holds the block lock of `node`.
    pub(crate) fn wait_for_unlock(&self, node: NodeRef<'_, V>) {
        let mut wait = Wait::new();
        self.stats.blocked();
        while node.word().is_locked() {
            wait.pause();
        }
    }
}
