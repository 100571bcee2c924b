//! A cache of an open file's extents, which saves readers the search in the trees.
//!
//! # Invariants
//! - An entry says what the tree has in a range of the file and, for data with checksums, what the
//!   checksum tree has of it. A reader, who holds the state of the inode locked in any mode,
//!   inserts entries if no extent of the file has changed since it searched the trees. A thread
//!   that changes extents has the state locked exclusively and, before it unlocks it, calls
//!   [`forget`](ExtentMap::forget) for the range. So an entry that a thread finds with the state
//!   locked is true as long as the state is locked.
//! - Entries from before content moved are never found, nor inserted later: a map says until which
//!   move its entries are true. A reader that finds that content moved while it read begins again.
//! - Entries may be missing: they go at any time when memory is short. Inline extents have none.
//! - A lookup takes no lock. All maps of a file system together have a bound, and besides whatever
//!   one thread inserts at once.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

use larder_range_index::RangeIndex;
use parking_lot::Mutex;

use crate::item::extent::MappedRange;
use crate::stats::ExtentMapStats;

/// An entry takes some 150 bytes, and up to 256 for CRC-32C checksums.
const ENTRY_BYTES: usize = 512;
/// The bounds of how many entries a file system keeps.
const ENTRIES: RangeInclusive<usize> = 1000..=100_000;
/// Entries may take this part of the memory for tree blocks.
const PART_OF_CACHE: usize = 4;

/// An extent, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct KnownExtent {
    /// It is not inline.
    pub(crate) extent: MappedRange,
    /// The checksums of the sectors of an uncompressed extent on disk.
    pub(crate) checksums: Option<Arc<[u8]>>,
}

/// Extents of one file.
pub(crate) struct ExtentMap {
    all: Arc<ExtentMaps>,
    /// Made with the first entry: it takes more memory than an inode.
    entries: OnceLock<Box<RangeIndex<KnownExtent>>>,
    /// Held while entries are inserted or removed. It is how many `all` counts.
    counted: Mutex<usize>,
    /// How often content had moved when the entries became true. Changes with `counted` locked.
    moves: AtomicU64,
    /// Its key in the table of filled maps; 0 if it is not there.
    turn: AtomicU64,
}

/// The maps of a file system.
pub(crate) struct ExtentMaps {
    /// Whether to keep anything.
    keeps: bool,
    most_entries: usize,
    entries: AtomicUsize,
    learned: AtomicU64,
    /// How often content has moved.
    moves: AtomicU64,
    filled: Mutex<Filled>,
}

/// The maps that have entries, and some that had, in the order of their first entry. Each is there
/// once, and no longer than it exists: a weak reference keeps the memory of a map.
#[derive(Default)]
struct Filled {
    last_turn: u64,
    maps: BTreeMap<u64, Weak<ExtentMap>>,
}

impl ExtentMap {
    /// An empty one.
    pub(crate) fn new(all: Arc<ExtentMaps>) -> Arc<Self> {
        let (entries, counted, moves, turn) = Default::default();
        Arc::new(Self { all, entries, counted, moves, turn })
    }

    /// The cached extent at `offset`, and the end of its range.
    pub(crate) fn get(&self, offset: u64) -> Option<(KnownExtent, u64)> {
        if self.moves.load(Acquire) != self.moves() {
            return None;
        }
        let (range, known) = self.entries.get()?.get(offset)?;
        Some((known, range.end))
    }

    /// How often content has moved. To be asked for before extents are searched that are
    /// [learned](Self::learn).
    pub(crate) fn moves(&self) -> u64 {
        self.all.moves.load(Acquire)
    }

    /// Inserts entries for ranges, unless content has moved since `moves`. Existing entries stay.
    pub(crate) fn learn(self: &Arc<Self>, learned: Vec<(Range<u64>, KnownExtent)>, moves: u64) {
        if learned.is_empty() || !self.all.keeps {
            return;
        }
        self.all.learned.fetch_add(learned.len() as u64, Relaxed);
        let is_first = self.edit(|entries| {
            if moves != self.moves() {
                return;
            }
            if self.moves.load(Acquire) != moves {
                entries.remove_range(0..u64::MAX, |entry, _| entry.value.clone());
                self.moves.store(moves, Release);
            }
            for (range, known) in learned {
                // Another reader may have been faster.
                let _ = entries.insert(range, known);
            }
        });
        if is_first {
            self.all.filled.lock().enter(self);
        }
        self.all.relieve();
    }

    /// Drops the entries of a range.
    pub(crate) fn forget(&self, range: Range<u64>) {
        let has_any = self.entries.get().is_some_and(|entries| !entries.is_empty());
        if !range.is_empty() && has_any {
            self.edit(|entries| entries.remove_range(range, |entry, _| entry.value.clone()));
        }
    }

    /// Changes the entries. Returns whether there were none before.
    fn edit<T>(&self, change: impl FnOnce(&RangeIndex<KnownExtent>) -> T) -> bool {
        let mut counted = self.counted.lock();
        let entries = self.entries.get_or_init(|| Box::new(RangeIndex::for_few_writers()));
        change(entries);
        let before = std::mem::replace(&mut *counted, entries.len());
        self.all.entries.fetch_add(*counted, Relaxed);
        self.all.entries.fetch_sub(before, Relaxed);
        before == 0
    }
}

impl Drop for ExtentMap {
    fn drop(&mut self) {
        self.all.entries.fetch_sub(*self.counted.get_mut(), Relaxed);
        let turn = *self.turn.get_mut();
        if turn != 0 {
            self.all.filled.lock().maps.remove(&turn);
        }
    }
}

impl Filled {
    /// Makes a map the last one.
    fn enter(&mut self, map: &Arc<ExtentMap>) {
        self.last_turn += 1;
        self.maps.insert(self.last_turn, Arc::downgrade(map));
        let before = map.turn.swap(self.last_turn, Relaxed);
        self.maps.remove(&before);
    }
}

impl ExtentMaps {
    /// Empty, and always empty if it keeps nothing. Tree blocks have `cache_bytes`.
    pub(crate) fn new(keeps: bool, cache_bytes: usize) -> Arc<Self> {
        let most_entries = cache_bytes / PART_OF_CACHE / ENTRY_BYTES;
        Arc::new(Self {
            keeps,
            most_entries: most_entries.clamp(*ENTRIES.start(), *ENTRIES.end()),
            entries: AtomicUsize::new(0),
            learned: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            filled: Mutex::default(),
        })
    }

    /// Content has moved: no map has anything that is true.
    pub(crate) fn forget_all(&self) {
        self.moves.fetch_add(1, AcqRel);
    }

    /// Empties the maps that were filled first, until there are few enough entries.
    fn relieve(&self) {
        while self.entries.load(Relaxed) > self.most_entries {
            let first = self.filled.lock().maps.pop_first();
            let Some((_, first)) = first else { return };
            if let Some(map) = first.upgrade() {
                map.forget(0..u64::MAX);
            }
        }
    }

    pub(crate) fn stats(&self) -> ExtentMapStats {
        ExtentMapStats {
            entries: self.entries.load(Relaxed) as u64,
            learned: self.learned.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_format::{FileOffset, Logical};

    use super::*;
    use crate::item::extent::{DiskExtent, ExtentContent};

    fn learn(map: &Arc<ExtentMap>, start: u64, len_bytes: u64) {
        let disk = DiskExtent {
            logical: Logical(1 << 20 | start),
            disk_bytes: len_bytes,
            ram_bytes: len_bytes,
            offset_bytes: 0,
            compression: None,
            generation: 1,
        };
        let content = ExtentContent::Data(disk);
        let extent = MappedRange { start: FileOffset(start), len_bytes, content };
        let known = KnownExtent { extent, checksums: None };
        map.learn(vec![(start..start + len_bytes, known)], map.moves());
    }

    #[test]
    fn nothing_is_known_from_before_content_moved() {
        let all = ExtentMaps::new(true, 0);
        let map = ExtentMap::new(all.clone());
        learn(&map, 0, 100);
        let (known, _) = map.get(0).expect("it is known");
        let moves = map.moves();
        all.forget_all();
        assert!(map.get(0).is_none());
        // A reader that had searched before comes late.
        map.learn(vec![(200..300, known)], moves);
        assert!(map.get(200).is_none());
        learn(&map, 100, 50);
        assert!(map.get(0).is_none() && map.get(120).is_some());
        assert_eq!(all.stats().entries, 1);
    }

    #[test]
    fn the_rest_of_a_cut_extent_is_still_cached() {
        let all = ExtentMaps::new(true, 0);
        let map = ExtentMap::new(all.clone());
        learn(&map, 0, 100);
        map.forget(40..60);
        for (offset, until) in [(0, 40), (39, 40), (60, 100)] {
            let (known, end) = map.get(offset).expect("it is known");
            assert_eq!((known.extent.start.0, known.extent.len_bytes, end), (0, 100, until));
        }
        assert!(map.get(40).is_none() && map.get(59).is_none() && map.get(100).is_none());
        assert_eq!(all.stats(), ExtentMapStats { entries: 2, learned: 1 });
        // The slower reader does not bring back a range that was cut.
        learn(&map, 0, 100);
        assert!(map.get(50).is_none());
        drop(map);
        assert_eq!(all.stats().entries, 0);
    }

    #[test]
    fn the_oldest_maps_are_emptied_when_there_is_too_much() {
        const MOST_ENTRIES: usize = *ENTRIES.start();
        let all = ExtentMaps::new(true, 0);
        let maps: Vec<_> = (0..3).map(|_| ExtentMap::new(all.clone())).collect();
        for (map, entries) in maps.iter().zip([MOST_ENTRIES / 2, MOST_ENTRIES / 2, 10]) {
            (0..entries as u64).for_each(|number| learn(map, number, 1));
        }
        assert!(maps[0].get(0).is_none() && maps[1].get(0).is_some() && maps[2].get(9).is_some());
        assert_eq!(all.stats().entries, MOST_ENTRIES as u64 / 2 + 10);
        // A map that is too large by itself begins anew.
        (0..=MOST_ENTRIES as u64).for_each(|number| learn(&maps[1], 1 << 30 | number, 1));
        assert!(all.stats().entries <= MOST_ENTRIES as u64);
    }

    #[test]
    fn maps_that_are_gone_take_no_memory() {
        let all = ExtentMaps::new(true, 0);
        let map = ExtentMap::new(all.clone());
        for _ in 0..3 {
            learn(&map, 0, 100);
            map.forget(0..100);
            learn(&ExtentMap::new(all.clone()), 0, 100);
        }
        assert_eq!(all.filled.lock().maps.len(), 1);
        drop(map);
        assert!(all.filled.lock().maps.is_empty());
    }

    #[test]
    fn nothing_is_kept_where_extents_are_searched_for() {
        let all = ExtentMaps::new(false, 0);
        let map = ExtentMap::new(all.clone());
        learn(&map, 0, 100);
        assert!(map.get(0).is_none());
        assert_eq!(all.stats(), ExtentMapStats::default());
    }
}
