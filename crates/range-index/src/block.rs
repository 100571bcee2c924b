//! A block: the immutable, sorted contents of one node.
//!
//! Invariants
//! - Nothing in a block changes after [`Builder::finish`]. Readers therefore need no lock and no
//!   validation, and a reference to a value stays good until the epoch in which the block was
//!   retired has passed. This is why values are cloned, not moved, when a neighbour changes: two
//!   blocks may be visible at once, and a value with interior mutability must not exist in two
//!   bitwise copies.
//! - `low <= key[0] < end[0] <= key[1] < end[1] <= ... <= high`: entries do not overlap and lie
//!   inside the tile `[low, high)`.
//! - The header's `largest` is the length of the largest hole, exactly: a search for space looks at
//!   no entry of a block without a hole for it.
//! - The allocation is exact: a header, `len` keys, `len` slots. Keys are contiguous, so that a
//!   search touches keys only and then one slot.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use crate::spare;

/// The fixed part of a block; keys and slots follow it in the same allocation.
#[repr(C)]
pub(crate) struct Header<V> {
    low: u64,
    high: u64,
    len: usize,
    largest: u64,
    values: PhantomData<V>,
}

/// The end of a key's range, and its value.
pub(crate) struct Slot<V> {
    pub(crate) end: u64,
    pub(crate) value: V,
}

/// An entry on its way into a block.
#[derive(Clone)]
pub(crate) struct Piece<V> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: V,
}

const KEYS_OFFSET: usize = size_of::<Header<()>>();

fn layout_of<V>(len: usize) -> (Layout, usize) {
    let keys = Layout::array::<u64>(len).expect("a block's keys fit in memory");
    let slots = Layout::array::<Slot<V>>(len).expect("a block's slots fit in memory");
    let (layout, keys_offset) = Layout::new::<Header<V>>().extend(keys).expect("a block's layout");
    debug_assert_eq!(keys_offset, KEYS_OFFSET);
    layout.extend(slots).expect("a block's layout")
}

/// Where the slots of a block of `len` entries begin, in bytes from its start.
fn slots_offset<V>(len: usize) -> usize {
    (KEYS_OFFSET + len * size_of::<u64>()).next_multiple_of(align_of::<Slot<V>>())
}

/// A block that may be read for as long as `'g`: under an epoch guard, or owned.
pub(crate) struct BlockRef<'g, V> {
    header: NonNull<Header<V>>,
    lifetime: PhantomData<&'g V>,
}

impl<V> Clone for BlockRef<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for BlockRef<'_, V> {}

impl<'g, V> BlockRef<'g, V> {
    /// # Safety
    /// `header` came from [`Builder::finish`] and is not freed during `'g`.
    pub(crate) unsafe fn new(header: NonNull<Header<V>>) -> Self {
        BlockRef { header, lifetime: PhantomData }
    }

    pub(crate) fn as_ptr(self) -> *mut Header<V> {
        self.header.as_ptr()
    }

    /// First address of the tile.
    pub(crate) fn low(self) -> u64 {
        // SAFETY: the block is alive during 'g and immutable.
        unsafe { self.header.as_ref().low }
    }

    /// First address after the tile.
    pub(crate) fn high(self) -> u64 {
        // SAFETY: as in `low`.
        unsafe { self.header.as_ref().high }
    }

    pub(crate) fn len(self) -> usize {
        // SAFETY: as in `low`.
        unsafe { self.header.as_ref().len }
    }

    /// The length of the largest hole.
    pub(crate) fn largest(self) -> u64 {
        // SAFETY: as in `low`.
        unsafe { self.header.as_ref().largest }
    }

    pub(crate) fn keys(self) -> &'g [u64] {
        // SAFETY: `len` initialised keys follow the header, inside the allocation that `header`
        // has provenance over, and they never change.
        unsafe {
            let keys = self.header.as_ptr().byte_add(KEYS_OFFSET).cast::<u64>();
            std::slice::from_raw_parts(keys, self.len())
        }
    }

    pub(crate) fn slots(self) -> &'g [Slot<V>] {
        let len = self.len();
        // SAFETY: `len` initialised slots begin at this offset; as in `keys`.
        unsafe {
            let slots = self.header.as_ptr().byte_add(slots_offset::<V>(len)).cast::<Slot<V>>();
            std::slice::from_raw_parts(slots, len)
        }
    }

    pub(crate) fn key(self, index: usize) -> u64 {
        self.keys()[index]
    }

    pub(crate) fn end(self, index: usize) -> u64 {
        self.slots()[index].end
    }

    /// How many entries begin at or before `point`.
    pub(crate) fn count_at_or_before(self, point: u64) -> usize {
        self.keys().partition_point(|&key| key <= point)
    }

    /// The entry that covers `point`.
    pub(crate) fn covering(self, point: u64) -> Option<usize> {
        let index = self.count_at_or_before(point).checked_sub(1)?;
        (self.end(index) > point).then_some(index)
    }

    /// The entries that share an address with `range`. When there are none, the empty result is
    /// where an entry with that range belongs.
    pub(crate) fn overlapping(self, range: &Range<u64>) -> Range<usize> {
        let keys = self.keys();
        let mut first = keys.partition_point(|&key| key <= range.start);
        if first > 0 && self.end(first - 1) > range.start {
            first -= 1;
        }
        let count = keys[first..].partition_point(|&key| key < range.end);
        first..first + count
    }

    /// The hole before entry `index`, or after the last entry when `index` is `len`.
    pub(crate) fn hole_before(self, index: usize) -> Range<u64> {
        let start = if index == 0 { self.low() } else { self.end(index - 1) };
        let end = if index == self.len() { self.high() } else { self.key(index) };
        start..end
    }

    /// The holes before entries `holes`, with the index of the entry.
    pub(crate) fn holes(
        self,
        holes: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (usize, Range<u64>)> {
        let (keys, slots) = (self.keys(), self.slots());
        assert!(holes.end <= keys.len() + 1, "the last hole is behind the last entry");
        holes.map(move |index| {
            let start = index.checked_sub(1).map_or(self.low(), |last| slots[last].end);
            (index, start..keys.get(index).copied().unwrap_or(self.high()))
        })
    }

    /// The first hole from that before entry `first` on, with the index of the entry, in which
    /// `place` finds a place. `place` is shown holes of `len` addresses and more.
    pub(crate) fn first_place<P>(
        self,
        first: usize,
        len: u64,
        mut place: impl FnMut(Range<u64>) -> Option<P>,
    ) -> Option<(usize, P)> {
        let mut look = |hole: Range<u64>| if length(&hole) < len { None } else { place(hole) };
        let mut start = if first == 0 { self.low() } else { self.end(first - 1) };
        let entries = self.keys()[first..].iter().zip(&self.slots()[first..]);
        for (index, (&key, slot)) in entries.enumerate() {
            if let Some(place) = look(start..key) {
                return Some((first + index, place));
            }
            start = slot.end;
        }
        look(start..self.high()).map(|place| (self.len(), place))
    }

    /// The length of the largest hole among those before entries `holes`.
    pub(crate) fn largest_hole(self, holes: Range<usize>) -> u64 {
        holes.map(|index| length(&self.hole_before(index))).max().unwrap_or(0)
    }

    /// The length of the largest hole, from a look at all entries.
    fn measure(self) -> u64 {
        let len = self.len();
        let outer = length(&self.hole_before(0)).max(length(&self.hole_before(len)));
        let Some((_, keys)) = self.keys().split_first() else { return outer };
        let slots = &self.slots()[..keys.len()];
        let ((keys, last_keys), (slots, last_slots)) =
            (keys.as_chunks::<4>(), slots.as_chunks::<4>());
        // Four maxima at a time do not wait for one another.
        let mut largest = [outer, 0, 0, 0];
        for (keys, slots) in keys.iter().zip(slots) {
            for lane in 0..4 {
                largest[lane] = largest[lane].max(keys[lane] - slots[lane].end);
            }
        }
        let last = last_keys.iter().zip(last_slots).map(|(key, slot)| key - slot.end);
        largest.into_iter().chain(last).fold(0, u64::max)
    }
}

/// Addresses in `range`.
pub(crate) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// A finished block that no other thread can see yet.
pub(crate) struct OwnedBlock<V> {
    header: NonNull<Header<V>>,
}

impl<V> OwnedBlock<V> {
    pub(crate) fn as_ref(&self) -> BlockRef<'_, V> {
        // SAFETY: the block lives as long as `self`.
        unsafe { BlockRef::new(self.header) }
    }

    /// Gives up ownership; the block is freed by [`free`].
    pub(crate) fn into_raw(self) -> *mut Header<V> {
        let raw = self.header.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl<V> Drop for OwnedBlock<V> {
    fn drop(&mut self) {
        // SAFETY: never published, so this is the only pointer to it.
        unsafe { free(self.header.as_ptr(), self.as_ref().len()) }
    }
}

/// Drops the values of a block of `len` entries and frees it. If values need no drop, the
/// block itself, which has long left the cache, is not touched.
///
/// # Safety
/// `header` came from [`OwnedBlock::into_raw`], is freed once, and no thread can read it any more.
pub(crate) unsafe fn free<V>(header: *mut Header<V>, len: usize) {
    // SAFETY: the caller's promise: the block is complete and ours.
    unsafe {
        debug_assert_eq!((*header).len, len, "a block keeps its length");
        if std::mem::needs_drop::<V>() {
            let slots = header.byte_add(slots_offset::<V>(len)).cast::<Slot<V>>();
            std::ptr::slice_from_raw_parts_mut(slots, len).drop_in_place();
        }
        spare::free(NonNull::new_unchecked(header).cast(), layout_of::<V>(len).0);
    }
}

/// Fills a block of a known number of entries, in order. Dropped early (a `clone` panicked), it
/// drops what it holds.
pub(crate) struct Builder<V> {
    header: NonNull<Header<V>>,
    capacity: usize,
    len: usize,
}

impl<V: Clone> Builder<V> {
    pub(crate) fn new(tile: Range<u64>, capacity: usize) -> Self {
        let (layout, offset) = layout_of::<V>(capacity);
        debug_assert_eq!(offset, slots_offset::<V>(capacity));
        let header = spare::allocate(layout).cast::<Header<V>>();
        // SAFETY: freshly allocated for this type.
        unsafe {
            header.write(Header {
                low: tile.start,
                high: tile.end,
                len: capacity,
                largest: 0,
                values: PhantomData,
            });
        }
        Builder { header, capacity, len: 0 }
    }

    fn keys(&self) -> *mut u64 {
        // SAFETY: inside the allocation.
        unsafe { self.header.as_ptr().byte_add(KEYS_OFFSET).cast() }
    }

    fn slots(&self) -> *mut Slot<V> {
        // SAFETY: inside the allocation.
        unsafe { self.header.as_ptr().byte_add(slots_offset::<V>(self.capacity)).cast() }
    }

    pub(crate) fn push(&mut self, piece: Piece<V>) {
        assert!(
            self.len < self.capacity,
            "a block is filled with as many entries as it was made for"
        );
        let slot = Slot { end: piece.end, value: piece.value };
        // SAFETY: `len < capacity`, so both places are inside the allocation and not yet written.
        unsafe {
            self.keys().add(self.len).write(piece.start);
            self.slots().add(self.len).write(slot);
        }
        self.len += 1;
    }

    /// Appends clones of `entries` of `block`.
    pub(crate) fn extend(&mut self, block: BlockRef<'_, V>, entries: Range<usize>) {
        let keys = &block.keys()[entries.clone()];
        let slots = &block.slots()[entries];
        assert!(slots.len() <= self.capacity - self.len, "room for the entries was asked for");
        let base = self.len;
        // SAFETY: the assertion keeps the keys inside the allocation, which cannot overlap a
        // finished block.
        unsafe {
            std::ptr::copy_nonoverlapping(keys.as_ptr(), self.keys().add(base), keys.len());
        }
        let to = self.slots();
        for (index, slot) in slots.iter().enumerate() {
            let copy = Slot { end: slot.end, value: slot.value.clone() };
            // SAFETY: as above; `len` counts only slots that were written, for `drop`.
            unsafe { to.add(base + index).write(copy) };
            if std::mem::needs_drop::<V>() {
                self.len = base + index + 1;
            }
        }
        self.len = base + slots.len();
    }

    pub(crate) fn finish(self) -> OwnedBlock<V> {
        assert_eq!(self.len, self.capacity, "a block is finished when it is full");
        // SAFETY: all entries are written, and the block is ours.
        let largest = unsafe { BlockRef::<V>::new(self.header) }.measure();
        self.finish_with(largest)
    }

    /// [`Builder::finish`] for a caller that knows the length of the largest hole.
    pub(crate) fn finish_with(self, largest: u64) -> OwnedBlock<V> {
        assert_eq!(self.len, self.capacity, "a block is finished when it is full");
        // SAFETY: the header was written when the block was allocated, and no other thread sees it
        // yet.
        unsafe { (*self.header.as_ptr()).largest = largest };
        let block = OwnedBlock { header: self.header };
        std::mem::forget(self);
        debug_assert!(is_sorted(block.as_ref()), "entries are in order inside their tile");
        debug_assert_eq!(largest, block.as_ref().measure(), "the largest hole is known");
        block
    }
}

fn is_sorted<V>(block: BlockRef<'_, V>) -> bool {
    (0..=block.len()).all(|index| {
        let hole = block.hole_before(index);
        hole.start <= hole.end && (index == block.len() || block.key(index) < block.end(index))
    })
}

impl<V> Drop for Builder<V> {
    fn drop(&mut self) {
        // SAFETY: `len` slots were written; the allocation is ours and has this layout.
        unsafe {
            let slots =
                self.header.as_ptr().byte_add(slots_offset::<V>(self.capacity)).cast::<Slot<V>>();
            std::ptr::slice_from_raw_parts_mut(slots, self.len).drop_in_place();
            spare::free(self.header.cast(), layout_of::<V>(self.capacity).0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_its_largest_hole_at_any_place() {
        for len in 0..20 {
            for wide in 0..=len {
                // Holes of one address, and one of seven.
                let starts: Vec<u64> = (0..len)
                    .map(|index| 101 + 2 * index + if index < wide { 0 } else { 6 })
                    .collect();
                let tile = 100..101 + 2 * len + 6;
                let mut builder = Builder::new(tile, starts.len());
                for start in starts {
                    builder.push(Piece { start, end: start + 1, value: () });
                }
                let block = builder.finish();
                let block = block.as_ref();
                assert_eq!(length(&block.hole_before(wide as usize)), 7);
                assert_eq!(block.largest(), 7, "the hole before entry {wide} of {len}");
            }
        }
    }
}
