//! Holes: the promise of each link about the space that it skips, and the search that trusts it.
//!
//! Invariants
//! - A hole lies in exactly one tile, since every tile except the first begins with an entry. So
//!   one block shows the whole hole, and one exchange of that block claims it.
//! - The bound of a link is at least the length of every hole in the span of the link, from its
//!   node up to its next, once the operation that made the hole has returned.
//! - Bounds are raised from level 0 upwards, *after* the block with the larger hole is published
//!   and, when a hole moves to another node, *before* it disappears from the old one.
//! - A thread lowers a bound under the tower lock, in three steps: it marks the bound, reads the
//!   bounds or holes below, and replaces the bound if it is still marked. A thread that raises the
//!   bound takes the mark away. After it publishes or marks, each thread reads what the other one
//!   writes. All of this is sequentially consistent, so that one of the two always sees the other.
//! - A new or lengthened link promises nothing: its bound is "unknown", larger than any hole.

use std::ops::Range;

use crossbeam_epoch::{self as epoch, Guard};

use crate::block::{BlockRef, Piece, length};
use crate::edit::Pieces;
use crate::node::{NO_KEY, NodeRef, Tower, Word};
use crate::reclaim;
use crate::search::{Path, Spot, locate_near};
use crate::skip_list::SkipList;
use crate::sync::Wait;
use crate::{RangeIndex, Value};

/// Which of the holes that are large enough to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest address first.
    Lowest,
    /// The highest address first.
    Highest,
    /// The lowest address at or after this one, or failing that the lowest of all. Callers that
    /// start at hints of their own do not meet.
    From(u64),
}

/// A hole to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many addresses to claim; not 0.
    pub len: u64,
    /// The first address is a multiple of this; not 0, need not be a power of two.
    pub align: u64,
    /// The claimed range lies inside this one.
    pub within: Range<u64>,
    /// Which hole to prefer.
    pub order: Order,
}

impl Request {
    /// The lowest hole of `len` addresses, anywhere.
    pub fn new(len: u64) -> Self {
        Request { len, align: 1, within: 0..u64::MAX, order: Order::Lowest }
    }

    /// Asks for a first address that is a multiple of `align`.
    #[must_use]
    pub fn align(self, align: u64) -> Self {
        Request { align, ..self }
    }

    /// Asks for a hole inside `within`.
    #[must_use]
    pub fn within(self, within: Range<u64>) -> Self {
        Request { within, ..self }
    }

    /// Asks for the hole that comes first in `order`.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Request { order, ..self }
    }

    /// The lowest place in `hole` and `within`.
    fn lowest_in(&self, hole: &Range<u64>, within: &Range<u64>) -> Option<u64> {
        let start = hole.start.max(within.start).checked_next_multiple_of(self.align)?;
        let end = start.checked_add(self.len)?;
        (end <= hole.end.min(within.end)).then_some(start)
    }

    /// The highest place in `hole` and `within`.
    fn highest_in(&self, hole: &Range<u64>, within: &Range<u64>) -> Option<u64> {
        if length(hole) < self.len {
            return None;
        }
        let last = hole.end.min(within.end).checked_sub(self.len)?;
        let start = last - last % self.align;
        (start >= hole.start.max(within.start)).then_some(start)
    }
}

/// How a scan of a span ended.
enum Scan {
    /// Claimed the range that begins here.
    Claimed(u64),
    /// Nothing in the span.
    Nothing,
    /// The list changed under the scan such that a tile may have been missed: go back to the last
    /// address that is certain.
    Lost,
}

/// A search for a hole in progress.
struct Search<'a, 'g, V, const KEYS: usize> {
    list: &'a SkipList<V, KEYS>,
    request: &'a Request,
    within: Range<u64>,
    value: &'a V,
    guard: &'g Guard,
}

impl<V: Value, const KEYS: usize> RangeIndex<V, KEYS> {
    /// Finds a hole and inserts an entry with `value` into it, in one atomic step. Returns the
    /// first address, or none when no hole is large enough.
    ///
    /// None means that every hole that was there from the beginning of the call to its end is
    /// too small; a hole that came or went meanwhile may or may not be seen. The same holds for
    /// the holes that [`Order`] would have preferred.
    ///
    /// # Panics
    /// When `len` or `align` is 0.
    #[expect(clippy::needless_pass_by_value, reason = "the index takes over what it is given")]
    pub fn claim(&self, request: &Request, value: V) -> Option<u64> {
        assert!(request.len > 0 && request.align > 0, "a claim has a length and an alignment");
        let all = request.within.clone();
        let claimed = match request.order {
            Order::Lowest => self.list.claim_lowest(request, all, &value),
            Order::Highest => self.list.claim_highest(request, all, &value),
            Order::From(hint) => {
                let above = hint.max(all.start)..all.end;
                self.list
                    .claim_lowest(request, above, &value)
                    .or_else(|| self.list.claim_lowest(request, all, &value))
            }
        };
        reclaim::relieve();
        claimed
    }
}

impl<V: Value, const KEYS: usize> SkipList<V, KEYS> {
    fn claim_lowest(&self, request: &Request, within: Range<u64>, value: &V) -> Option<u64> {
        let mut from = within.start;
        let mut wait = Wait::new();
        loop {
            let guard = &epoch::pin();
            let search = Search { list: self, request, within: within.clone(), value, guard };
            match search.upwards(self.head(guard), self.top(), NO_KEY, &mut from, &mut None) {
                Scan::Claimed(start) => return Some(start),
                Scan::Nothing if from >= within.end => return None,
                Scan::Nothing | Scan::Lost => wait.pause(),
            }
        }
    }

    fn claim_highest(&self, request: &Request, within: Range<u64>, value: &V) -> Option<u64> {
        let mut until = within.end;
        let mut wait = Wait::new();
        loop {
            let guard = &epoch::pin();
            let search = Search { list: self, request, within: within.clone(), value, guard };
            match search.downwards(self.head(guard), self.top(), 0..NO_KEY, &mut until) {
                Scan::Claimed(start) => return Some(start),
                Scan::Nothing if until <= within.start => return None,
                Scan::Nothing | Scan::Lost => wait.pause(),
            }
        }
    }

    /// Raises the bounds of every link whose span has `point`, which is in the tile of `node` or
    /// was a moment ago, to a hole of `len` around it.
    ///
    /// `path` spares a search if it leads to `node`: then what it names is never right of the tile
    /// with `point`, since only the node of that tile can lose it to a node further left, and the
    /// thread that moves it raises the bounds again.
    pub(crate) fn raise_bounds<'g>(
        &self,
        node: NodeRef<'g, V>,
        path: Option<&Path<'g, V>>,
        point: u64,
        len: u64,
        guard: &'g Guard,
    ) {
        let mut known = path.filter(|path| path.at(0) == node);
        let mut node = node;
        loop {
            for level in 0..node.height() {
                node.link(level).bound.raise(len);
            }
            let fresh;
            let path = match known.take() {
                Some(path) => path,
                None => {
                    fresh = self.path(point, guard);
                    &fresh
                }
            };
            let mut level = node.height();
            // The thread reads the top anew at each level: a thread that adds a level reads the
            // bounds below it.
            while level <= self.top() {
                self.raise_level(path.at(level), level, point, len, guard);
                level += 1;
            }
            let spot = locate_near(node, point, guard);
            if spot.node == node {
                return;
            }
            node = spot.node;
        }
    }

    /// Raises the bound of the link at `level` over `point`, looked for from `near` on.
    fn raise_level<'g>(
        &self,
        near: NodeRef<'g, V>,
        level: usize,
        point: u64,
        len: u64,
        guard: &'g Guard,
    ) {
        let mut node = near;
        let mut wait = Wait::new();
        loop {
            let link = node.link(level);
            link.bound.raise(len);
            match node.tower() {
                Tower::Open => match link.next(guard) {
                    Some(next) if link.key() <= point => node = next,
                    _ => return,
                },
                // The link may be about to get a new neighbour: wait, then see where it leads.
                Tower::Locked => wait.pause(),
                Tower::Closed => {
                    wait.pause();
                    node = self.predecessor(point, level, guard);
                }
            }
        }
    }
}

/// Lowers the bound of the link of `node` at `level`, above 0, to the largest bound below it,
/// unless the tower is in use.
fn refresh_bound<V>(node: NodeRef<'_, V>, level: usize, guard: &Guard) {
    if node.try_lock_tower() {
        node.link(level).bound.lower(|| largest_bound_below(node, level, guard));
        node.unlock_tower();
    }
}

/// Lowers the bound of the lowest link of `node` to the largest hole in `block`, unless the tower
/// is in use. Blocks do not change, so if the node still has the one that `word` stands for, that
/// is all there is to read.
fn lower_to<V>(node: NodeRef<'_, V>, word: Word<V>, block: BlockRef<'_, V>) {
    let (bound, largest) = (&node.link(0).bound, block.largest());
    if bound.exceeds(largest) && node.try_lock_tower() {
        bound.lower(|| if node.word() == word { largest } else { u64::MAX });
        node.unlock_tower();
    }
}

/// The largest bound of the links one level below the link of `node` at `level`, from the node to
/// the end of that link, which the caller keeps from changing.
fn largest_bound_below<V>(node: NodeRef<'_, V>, level: usize, guard: &Guard) -> u64 {
    let end = node.link(level).next(guard);
    let mut largest = 0;
    let mut at = node;
    loop {
        let link = at.link(level - 1);
        let mut next = link.next(guard);
        // The bound belongs to the span only if the link did not change around reading it.
        let bound = loop {
            let bound = link.bound.get();
            let now = link.next(guard);
            if now == next {
                break bound;
            }
            next = now;
        };
        largest = largest.max(bound);
        match next {
            Some(next) if Some(next) != end => at = next,
            _ => return largest,
        }
    }
}

impl<'g, V: Value, const KEYS: usize> Search<'_, 'g, V, KEYS> {
    fn is_hopeless(&self, bound: u64) -> bool {
        bound < self.request.len
    }

    /// Looks for the lowest place from `node` on along links of `level`, up to a tile that begins
    /// at `end` or later. `from` is the address below which everything has been looked at;
    /// `came_over` is the link that says where the tile of `node` begins, if there is one.
    fn upwards(
        &self,
        node: NodeRef<'g, V>,
        level: usize,
        end: u64,
        from: &mut u64,
        came_over: &mut Option<(NodeRef<'g, V>, usize, u64)>,
    ) -> Scan {
        let mut node = node;
        loop {
            let link = node.link(level);
            let (key, next) = link.target(self.guard);
            if key > *from || next.is_none() {
                let bound = link.bound.get();
                if link.key() != key {
                    // The bound may be that of a shorter link.
                    continue;
                }
                let found = if self.is_hopeless(bound) {
                    // The tile to the right of a link may have passed a hole to its left side
                    // after that side was looked at; then the link has a new key.
                    // A dead node's links keep their keys, so they tell nothing.
                    let moved = |(node, level, key): (NodeRef<'g, V>, usize, u64)| {
                        node.link(level).key() != key || matches!(node.tower(), Tower::Closed)
                    };
                    if came_over.is_some_and(moved) {
                        return Scan::Lost;
                    }
                    *from = (*from).max(key);
                    Scan::Nothing
                } else {
                    match level {
                        0 => self.node_upwards(node, from),
                        _ => {
                            // Only a search that looks at all that a link skips knows that its
                            // bound is too high.
                            let start = came_over.map_or(0, |(_, _, key)| key);
                            let whole = self.within.start <= start && key <= self.within.end;
                            let found = self.upwards(node, level - 1, key, from, came_over);
                            if whole && matches!(found, Scan::Nothing) {
                                refresh_bound(node, level, self.guard);
                            }
                            found
                        }
                    }
                };
                if !matches!(found, Scan::Nothing) {
                    return found;
                }
            }
            match next {
                Some(next) if key < end && *from < self.within.end => {
                    *came_over = Some((node, level, key));
                    node = next;
                }
                _ => return Scan::Nothing,
            }
        }
    }

    fn node_upwards(&self, node: NodeRef<'g, V>, from: &mut u64) -> Scan {
        loop {
            let word = node.word();
            let Some(block) = word.block(self.guard) else { return Scan::Lost };
            if block.low() > *from {
                return Scan::Lost;
            }
            let Some((index, start)) = self.lowest_place(block) else {
                lower_to(node, word, block);
                *from = (*from).max(block.high());
                return Scan::Nothing;
            };
            if self.take(&Spot { node, word, block }, index, start) {
                return Scan::Claimed(start);
            }
        }
    }

    fn lowest_place(&self, block: BlockRef<'_, V>) -> Option<(usize, u64)> {
        if self.is_hopeless(block.largest()) {
            return None;
        }
        let first = match self.within.start {
            start if start <= block.low() => 0,
            start => block.count_at_or_before(start).saturating_sub(1),
        };
        block.first_place(first, self.request.len, |hole| {
            self.request.lowest_in(&hole, &self.within)
        })
    }

    /// Looks for the highest place, from right to left, in the part of `level` that begins with
    /// `node`; links say that it is `span`. `until` is the address from which on everything has
    /// been looked at.
    fn downwards(
        &self,
        node: NodeRef<'g, V>,
        level: usize,
        span: Range<u64>,
        until: &mut u64,
    ) -> Scan {
        let mut links = Vec::new();
        let (mut at, mut start) = (node, span.start);
        loop {
            let (key, next) = at.link(level).target(self.guard);
            links.push((at, start..key));
            match next {
                Some(next) if key < span.end && key < *until => (at, start) = (next, key),
                _ => break,
            }
        }
        for (node, span) in links.into_iter().rev() {
            if *until <= self.within.start {
                return Scan::Nothing;
            }
            let link = node.link(level);
            let found = if self.is_hopeless(link.bound.get()) {
                // A node that was split off after the thread read the link still has to be
                // searched.
                if link.key() != span.end || span.end < *until {
                    return Scan::Lost;
                }
                *until = span.start;
                Scan::Nothing
            } else {
                match level {
                    0 => self.node_downwards(node, until),
                    _ => {
                        let whole = self.within.start <= span.start && span.end <= self.within.end;
                        let found = self.downwards(node, level - 1, span, until);
                        if whole && matches!(found, Scan::Nothing) {
                            refresh_bound(node, level, self.guard);
                        }
                        found
                    }
                }
            };
            if !matches!(found, Scan::Nothing) {
                return found;
            }
        }
        Scan::Nothing
    }

    fn node_downwards(&self, node: NodeRef<'g, V>, until: &mut u64) -> Scan {
        loop {
            let word = node.word();
            let Some(block) = word.block(self.guard) else { return Scan::Lost };
            if block.high() < *until {
                return Scan::Lost;
            }
            let Some((index, start)) = self.highest_place(block) else {
                lower_to(node, word, block);
                *until = (*until).min(block.low());
                return Scan::Nothing;
            };
            if self.take(&Spot { node, word, block }, index, start) {
                return Scan::Claimed(start);
            }
        }
    }

    fn highest_place(&self, block: BlockRef<'_, V>) -> Option<(usize, u64)> {
        if self.is_hopeless(block.largest()) {
            return None;
        }
        let place = |(index, hole)| Some((index, self.request.highest_in(&hole, &self.within)?));
        block.holes(0..block.len() + 1).rev().find_map(place)
    }

    /// Inserts the claimed range before entry `index` if the block has not changed.
    fn take(&self, spot: &Spot<'g, V>, index: usize, start: u64) -> bool {
        let piece = Piece { start, end: start + self.request.len, value: self.value.clone() };
        if spot.word.is_locked() {
            self.list.wait_for_unlock(spot.node);
            return false;
        }
        let with = Pieces::from_iter([piece]);
        self.list.try_splice(spot, None, &(index..index), with, self.guard)
    }
}
