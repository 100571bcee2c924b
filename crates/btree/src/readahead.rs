//! Readahead that knows which way a cursor walks.
//!
//! A cursor that is about to visit a child tells the store which of the child's siblings come
//! next. The store passes that on to the devices as a hint, so that no thread waits. A block
//! enters the cache only when a cursor wants it. Adjacent siblings become one request.

use larder_format::Logical;
use larder_format::node::KeyPointer;

use crate::block::Block;
use crate::cache::BlockCache;

/// Which siblings a cursor has read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// None: single lookups.
    #[default]
    None,
    /// Those before, when the wanted block is not in memory: walks towards smaller keys.
    Back,
    /// Those after, when the wanted block is not in memory: ranges, directories, files.
    Forward,
    /// Those after, even when the wanted block is in memory: walks that will visit every leaf in
    /// order (send, dump, check). Cached leaves in between do not stop the stream of reads.
    ForwardAlways,
}

/// Leaves are read ahead up to this many bytes.
const LEAF_WINDOW_BYTES: usize = 512 * 1024;
/// A window begins with so many blocks, since a range may end soon, and doubles from there.
const FIRST_WINDOW_BLOCKS: usize = 4;
/// Internal nodes are far fewer than leaves: the next two are enough to hide their latency.
const NODE_WINDOW_BLOCKS: usize = 2;

/// How far one cursor reads ahead.
#[derive(Debug)]
pub(crate) struct Window {
    mode: Readahead,
    leaf_blocks: usize,
}

/// The slots of one internal node that a cursor has asked for already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    start: usize,
    end: usize,
}

impl Window {
    pub(crate) fn new(mode: Readahead) -> Self {
        Self { mode, leaf_blocks: FIRST_WINDOW_BLOCKS }
    }

    /// Reads ahead before the cursor fetches the child at `slot` of `parent`.
    pub(crate) fn before_fetch(
        &mut self,
        cache: &BlockCache,
        parent: &Block,
        slot: usize,
        asked: &mut Asked,
    ) {
        let wanted = parent.node().key_pointers()[slot].blockptr();
        match self.mode {
            Readahead::None => return,
            Readahead::Forward | Readahead::Back if cache.contains(wanted) => return,
            _ => {}
        }
        let blocks = self.blocks(parent.level(), cache.nodesize());
        let next = if self.mode == Readahead::Back {
            asked.extend_back(slot, blocks)
        } else {
            asked.extend_forward(slot, blocks, parent.node().nritems())
        };
        if !next.is_empty() {
            request(cache, parent, next);
            self.leaf_blocks = (2 * self.leaf_blocks).min(LEAF_WINDOW_BYTES / cache.nodesize());
        }
    }

    /// Counts readahead that was of use, after the child at `slot` came from the store.
    pub(crate) fn after_read(cache: &BlockCache, slot: usize, asked: Asked) {
        if (asked.start..asked.end).contains(&slot) {
            cache.counters.readahead_used.add(1);
        }
    }

    fn blocks(&self, parent_level: u8, nodesize: usize) -> usize {
        match (parent_level, self.mode) {
            (1, Readahead::ForwardAlways) => LEAF_WINDOW_BYTES / nodesize,
            (1, _) => self.leaf_blocks,
            _ => NODE_WINDOW_BLOCKS,
        }
    }
}

/// Readahead for a cursor that searches its leaf anew each time.
#[derive(Debug)]
pub(crate) struct LiveWindow {
    window: Window,
    /// The parent whose children it asked for last, and which of these.
    parent: Logical,
    asked: Asked,
}

impl LiveWindow {
    pub(crate) fn new(mode: Readahead) -> Self {
        Self { window: Window::new(mode), parent: Logical(0), asked: Asked::default() }
    }

    /// Reads ahead before the cursor reads the child at `slot` of `parent` from the store.
    pub(crate) fn before_read(&mut self, cache: &BlockCache, parent: &Block, slot: usize) {
        if self.parent != parent.logical() {
            (self.parent, self.asked) = (parent.logical(), Asked::default());
        }
        self.window.before_fetch(cache, parent, slot, &mut self.asked);
        Window::after_read(cache, slot, self.asked);
    }
}

impl Asked {
    /// The slots after `slot` to ask for now: none while half a window is still ahead.
    fn extend_forward(
        &mut self,
        slot: usize,
        blocks: usize,
        slots: usize,
    ) -> std::ops::Range<usize> {
        if !(self.start..=self.end).contains(&(slot + 1)) {
            *self = Self { start: slot + 1, end: slot + 1 };
        }
        let from = self.end;
        if from - (slot + 1) <= blocks / 2 {
            self.end = (slot + 1 + blocks).clamp(from, slots.max(from));
        }
        from..self.end
    }

    /// As [`extend_forward`](Self::extend_forward), for the slots before `slot`.
    fn extend_back(&mut self, slot: usize, blocks: usize) -> std::ops::Range<usize> {
        if !(self.start..=self.end).contains(&slot) {
            *self = Self { start: slot, end: slot };
        }
        let from = self.start;
        if slot - from <= blocks / 2 {
            self.start = slot.saturating_sub(blocks).min(from);
        }
        self.start..from
    }
}

/// Asks the store for the children at `slots` that are not in memory, adjacent ones together.
fn request(cache: &BlockCache, parent: &Block, slots: std::ops::Range<usize>) {
    let nodesize = cache.nodesize() as u64;
    let pointers = &parent.node().key_pointers()[slots];
    let mut addresses: Vec<Logical> = pointers
        .iter()
        .map(KeyPointer::blockptr)
        .filter(|&logical| !cache.contains(logical))
        .collect();
    addresses.sort_unstable();
    let adjacent = |a: &Logical, b: &Logical| a.checked_add(nodesize) == Some(*b);
    for run in addresses.chunk_by(adjacent) {
        cache.store().readahead(run[0], run.len() as u64 * nodesize);
        cache.counters.readahead_requests.add(1);
        cache.counters.readahead_blocks.add(run.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_refilled_when_half_of_it_is_used() {
        let mut asked = Asked::default();
        assert_eq!(asked.extend_forward(10, 8, 100), 11..19);
        assert_eq!(asked.extend_forward(11, 8, 100), 19..19);
        assert_eq!(asked.extend_forward(14, 8, 100), 19..23);
        assert_eq!(asked.extend_forward(95, 8, 100), 96..100);
        assert_eq!(asked.extend_forward(99, 8, 100), 100..100);
    }

    #[test]
    fn windows_back_stop_at_slot_zero() {
        let mut asked = Asked::default();
        assert_eq!(asked.extend_back(10, 4), 6..10);
        assert_eq!(asked.extend_back(8, 4), 4..6);
        assert_eq!(asked.extend_back(3, 8), 0..3);
        assert_eq!(asked.extend_back(0, 8), 0..0);
    }
}
