//! One block group in memory: which of its addresses are taken, and for what.
//!
//! # Invariants
//! - Every address that an extent of the running or of the last durable state covers is taken, or of
//!   one that a reader keeps, and so are the places of superblock copies.
//! - `used` is in the extent tree, `reserved` was allocated and is not in it yet, `pinned` is not
//!   in it any more but still in the last durable state, or in one that a reader keeps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use larder_format::{BlockGroupFlags, Logical};
use larder_range_index::{Order, RangeIndex, Request};
use larder_volume::Chunk;
use parking_lot::RwLock;

use super::SpaceKind;
use super::state::{GroupState, SharedState};
use crate::error::{Error, Result};

/// A block group. All numbers are bytes.
pub struct Group {
    /// Always with the same addresses and types.
    chunk: RwLock<Arc<Chunk>>,
    range: Range<u64>,
    /// Its chunk moves to another layout: the group stays until that is done.
    moves: AtomicBool,
    /// Ranges in use, pinned or unusable; adjacent ones are one.
    taken: RangeIndex<()>,
    unusable_bytes: AtomicU64,
    /// Cut from its end, where all is taken.
    cut_bytes: AtomicU64,
    pub(super) used: AtomicU64,
    pub(super) reserved: AtomicU64,
    pub(super) pinned: AtomicU64,
    state: SharedState,
}

/// What a cut takes from a group.
pub(super) struct Cut {
    pub(super) total_bytes: u64,
    pub(super) unusable_bytes: u64,
}

impl Group {
    /// The group of `chunk`; `free` is free except where superblock copies are.
    pub(super) fn new(
        chunk: Arc<Chunk>,
        used: u64,
        free: &[Range<u64>],
        state: GroupState,
    ) -> Result<Self> {
        let group = chunk.logical().0..chunk.end().0;
        let taken = RangeIndex::new();
        let mut free_bytes = 0;
        let mut at = group.start;
        for range in free.iter().chain([&(group.end..group.end)]) {
            if range.start < at || range.end > group.end || range.start > range.end {
                let problem = format!("free range {range:?} lies outside it or after another");
                return Err(Error::block_group(chunk.logical(), problem));
            }
            if at < range.start {
                taken.insert(at..range.start, ()).expect("free ranges ascend");
            }
            free_bytes += range.end - range.start;
            at = range.end;
        }
        if used + free_bytes != chunk.len_bytes() {
            let problem =
                format!("{used} bytes are used and {free_bytes} free, of {}", chunk.len_bytes());
            return Err(Error::block_group(chunk.logical(), problem));
        }
        let mut unusable_bytes = 0;
        for (start, len_bytes) in chunk.superblock_ranges() {
            let range = start.0..start.0 + len_bytes;
            unusable_bytes += len_bytes - taken.remove_range(range.clone(), |_, _| ());
            taken.insert(range, ()).expect("it was just cleared");
        }
        Ok(Self {
            chunk: RwLock::new(chunk),
            range: group,
            moves: AtomicBool::new(false),
            taken,
            unusable_bytes: AtomicU64::new(unusable_bytes),
            cut_bytes: AtomicU64::new(0),
            used: AtomicU64::new(used),
            reserved: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            state: SharedState::new(state),
        })
    }

    /// The chunk under it.
    pub fn chunk(&self) -> Arc<Chunk> {
        self.chunk.read().clone()
    }

    /// Sets another layout of its addresses.
    pub(super) fn set_chunk(&self, chunk: Arc<Chunk>) {
        debug_assert_eq!(self.range(), chunk.logical().0..chunk.end().0);
        *self.chunk.write() = chunk;
    }

    /// Says whether the chunk moves, or is copied: the group stays as long as it does.
    pub(crate) fn set_moves(&self, moves: bool) {
        self.moves.store(moves, SeqCst);
    }

    /// Whether the chunk moves.
    pub(super) fn moves(&self) -> bool {
        self.moves.load(SeqCst)
    }

    /// The parts of `window` that are in use, pinned or unusable.
    pub(crate) fn taken_in(&self, window: Range<u64>) -> Vec<Range<u64>> {
        let reader = self.taken.reader();
        let entries = reader.ascending(window.clone()).map(|entry| entry.range());
        entries.map(|range| range.start.max(window.start)..range.end.min(window.end)).collect()
    }

    /// Its address.
    pub fn start(&self) -> Logical {
        Logical(self.range.start)
    }

    /// The addresses that it covers.
    pub fn range(&self) -> Range<u64> {
        self.range.start..self.range.end - self.cut_bytes.load(SeqCst)
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// The highest address on a device at which a stripe of it starts.
    pub(super) fn highest_place(&self) -> u64 {
        let chunk = self.chunk();
        chunk.stripes().iter().map(|stripe| stripe.physical.0).max().unwrap_or_default()
    }

    /// Type and profile.
    pub fn flags(&self) -> BlockGroupFlags {
        self.chunk.read().flags()
    }

    /// Whether it is for `kind`.
    pub fn holds(&self, kind: SpaceKind) -> bool {
        self.flags().contains(kind.flag())
    }

    /// Used according to the extent tree.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Allocated, and not in the extent tree yet.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.load(SeqCst)
    }

    /// Unusable: the places of superblock copies.
    pub fn unusable_bytes(&self) -> u64 {
        self.unusable_bytes.load(SeqCst)
    }

    /// Free bytes, in any number of pieces. Approximate while other threads allocate.
    pub fn free_bytes(&self) -> u64 {
        // What was cut is taken.
        (self.range.end - self.range.start).saturating_sub(self.taken.covered())
    }

    /// Its state.
    pub fn state(&self) -> GroupState {
        self.state.get()
    }

    /// Its items are about to be inserted into the trees.
    pub(super) fn open(&self) {
        self.state.change(GroupState::New, GroupState::Open);
    }

    /// Allocates a free range of `len_bytes`, the first at or after `hint` or otherwise the first
    /// of all, and counts it as reserved.
    pub(super) fn claim(&self, len_bytes: u64, align: u64, hint: u64) -> Option<Logical> {
        if self.free_bytes() < len_bytes {
            return None;
        }
        // Counted before looking at the state.
        self.reserved.fetch_add(len_bytes, SeqCst);
        let allocates = self.state().allocates();
        let claimed = if allocates { self.claim_free(len_bytes, align, hint) } else { None };
        if claimed.is_none() {
            self.reserved.fetch_sub(len_bytes, SeqCst);
        }
        claimed
    }

    /// Allocates exactly this range, if all of it is free, and counts it as reserved.
    pub(super) fn claim_exactly(&self, range: &Range<u64>) -> bool {
        let is_free = self.taken.insert(range.clone(), ()).is_ok();
        if is_free {
            self.reserved.fetch_add(range.end - range.start, SeqCst);
        }
        is_free
    }

    /// Whether nothing in it is in use.
    pub(super) fn is_empty(&self) -> bool {
        let counts = [&self.used, &self.reserved, &self.pinned];
        counts.iter().all(|count| count.load(SeqCst) == 0)
    }

    /// Changes the state. Returns whether it was `from`.
    pub(super) fn change_state(&self, from: GroupState, to: GroupState) -> bool {
        self.state.change(from, to)
    }

    /// Makes an open group, or one that leaves, one that is emptied, if nothing in it is in use.
    /// Returns whether it did.
    pub(super) fn empty(&self) -> bool {
        let before = self.state();
        let may_be_emptied = matches!(before, GroupState::Open | GroupState::Leaving);
        if !may_be_emptied || !self.state.change(before, GroupState::Emptied) {
            return false;
        }
        // Looked at after the state has changed.
        let is_empty = self.is_empty();
        if !is_empty {
            self.state.change(GroupState::Emptied, before);
        }
        is_empty
    }

    fn claim_free(&self, len_bytes: u64, align: u64, hint: u64) -> Option<Logical> {
        let request =
            Request::new(len_bytes).align(align).within(self.range()).order(Order::From(hint));
        let start = self.taken.claim(&request, ())?;
        // A single entry for a range that was taken in one piece keeps the index small.
        self.taken.merge_at(start, |(), ()| Some(()));
        self.taken.merge_at(start + len_bytes, |(), ()| Some(()));
        Some(Logical(start))
    }

    /// Makes a range free again that was claimed for nothing.
    pub(super) fn give_back(&self, range: Range<u64>) {
        self.reserved.fetch_sub(range.end - range.start, SeqCst);
        self.release(range);
    }

    /// Cuts it at an address, after which everything is taken and nothing is in use.
    pub(super) fn cut(&self, end: u64) -> Cut {
        let before = self.range().end;
        let superblocks = self.chunk().superblock_ranges();
        let cut = superblocks.iter().filter(|(start, _)| start.0 >= end);
        let unusable_bytes = cut.map(|(_, len_bytes)| *len_bytes).sum::<u64>();
        let unusable_bytes = unusable_bytes.min(self.unusable_bytes());
        self.unusable_bytes.fetch_sub(unusable_bytes, SeqCst);
        self.cut_bytes.fetch_add(before - end, SeqCst);
        Cut { total_bytes: before - end, unusable_bytes }
    }

    /// Makes a range free that is neither used nor pinned any more.
    pub(super) fn release(&self, range: Range<u64>) {
        let len_bytes = range.end - range.start;
        let released = self.taken.remove_range(range, |_, _| ());
        debug_assert_eq!(released, len_bytes, "only what is taken is released");
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("range", &self.range())
            .field("flags", &self.flags())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one free range")]
mod tests {
    use larder_format::{Physical, Uuid};
    use larder_volume::ChunkStripe;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn chunk(physical: u64) -> Arc<Chunk> {
        let stripe = ChunkStripe { devid: 1, dev_uuid: Uuid::nil(), physical: Physical(physical) };
        Arc::new(Chunk::new(Logical(MIB), 8 * MIB, BlockGroupFlags::METADATA, [stripe]).unwrap())
    }

    #[test]
    fn all_of_it_can_be_claimed_once_and_again_when_released() {
        let group = Group::new(chunk(MIB), 0, &[MIB..9 * MIB], GroupState::Open).unwrap();
        for _ in 0..2 {
            let mut claimed: Vec<u64> =
                std::iter::from_fn(|| group.claim(16384, 16384, 5 * MIB)).map(|l| l.0).collect();
            assert_eq!(claimed[0], 5 * MIB);
            claimed.sort_unstable();
            assert!(claimed.iter().copied().eq((MIB..9 * MIB).step_by(16384)));
            assert_eq!((group.free_bytes(), group.taken.len()), (0, 1));
            for start in claimed {
                group.release(start..start + 16384);
            }
            assert_eq!(group.free_bytes(), 8 * MIB);
        }
    }

    #[test]
    fn no_address_is_handed_out_twice_at_a_time() {
        const BLOCK: u64 = 16384;
        let group = Group::new(chunk(MIB), 0, &[MIB..9 * MIB], GroupState::Open).unwrap();
        let taken: Vec<AtomicBool> = (0..9 * MIB / BLOCK).map(|_| AtomicBool::new(false)).collect();
        let work = |seed: u64| {
            let (mut mine, mut random) = (Vec::new(), seed);
            for _ in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let choice = (random >> 33) as usize;
                if choice % 5 < 3 || mine.is_empty() {
                    let hint = MIB + (random >> 20) % (8 * MIB);
                    let Some(start) = group.claim(BLOCK, BLOCK, hint) else { continue };
                    let was_taken = taken[(start.0 / BLOCK) as usize].swap(true, SeqCst);
                    assert!(!was_taken, "{start} is handed out twice");
                    mine.push(start.0);
                } else {
                    let start = mine.swap_remove(choice % mine.len());
                    taken[(start / BLOCK) as usize].store(false, SeqCst);
                    group.release(start..start + BLOCK);
                }
            }
            mine.len() as u64
        };
        let held: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|seed| {
                    scope.spawn({
                        let work = &work;
                        move || work(seed)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(group.len_bytes() - group.free_bytes(), held * BLOCK);
    }

    #[test]
    fn superblock_copies_are_stepped_around() {
        // The copy at 64 MiB lies 1 MiB into the group.
        let group = Group::new(chunk(63 * MIB), 0, &[MIB..9 * MIB], GroupState::Open).unwrap();
        assert_eq!(group.unusable_bytes(), 65536);
        let claimed: Vec<u64> =
            std::iter::from_fn(|| group.claim(65536, 65536, 0)).map(|l| l.0).collect();
        assert_eq!(claimed.len(), 127);
        assert!(!claimed.contains(&(2 * MIB)));
    }

    #[test]
    fn a_group_closes_only_when_empty_and_stays_closed() {
        let group = Group::new(chunk(MIB), 0, &[MIB..9 * MIB], GroupState::Open).unwrap();
        let start = group.claim(16384, 16384, 0).unwrap();
        assert!(!group.empty() && group.state() == GroupState::Open);
        group.release(start.0..start.0 + 16384);
        group.reserved.fetch_sub(16384, SeqCst);
        assert!(group.empty() && group.state() == GroupState::Emptied);
        assert_eq!(group.claim(16384, 16384, 0), None);
    }

    #[test]
    fn loaded_used_space_is_not_claimed() {
        let used = 3 * MIB;
        let group =
            Group::new(chunk(MIB), used, &[MIB..2 * MIB, 5 * MIB..9 * MIB], GroupState::Open)
                .unwrap();
        assert_eq!(group.free_bytes(), 5 * MIB);
        assert_eq!(group.claim(4 * MIB, 4096, 0), Some(Logical(5 * MIB)));
        assert_eq!(group.claim(2 * MIB, 4096, 0), None);
    }

    #[test]
    fn free_ranges_that_cannot_be_are_refused() {
        let refused = |used, free: &[Range<u64>]| {
            Group::new(chunk(MIB), used, free, GroupState::Open).is_err()
        };
        assert!(refused(0, &[MIB..8 * MIB]), "not all is accounted for");
        assert!(refused(0, &[0..8 * MIB]), "before its start");
        assert!(refused(0, &[5 * MIB..9 * MIB, MIB..5 * MIB]), "out of order");
        assert!(refused(7 * MIB, &[9 * MIB..10 * MIB]), "behind its end");
    }

    #[test]
    fn addresses_come_from_new_and_open_groups() {
        let with = |state| Group::new(chunk(MIB), 0, &[MIB..9 * MIB], state).unwrap();
        let claims = |group: &Group| {
            let claimed = group.claim(16384, 16384, MIB);
            let len_bytes = claimed.map_or(0, |_| 16384);
            if let Some(start) = claimed {
                group.release(start.0..start.0 + len_bytes);
            }
            group.reserved.fetch_sub(len_bytes, SeqCst);
            claimed.is_some()
        };
        let group = with(GroupState::New);
        assert!(claims(&group) && !group.empty());
        group.open();
        assert!(claims(&group) && group.empty());
        assert!(!claims(&group) && !group.empty());
        assert!(!claims(&with(GroupState::ReadOnly)));
    }
}
