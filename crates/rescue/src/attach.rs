//! A tree put together from what is left of it.
//!
//! What its root leads to comes first: it is as it was. Each range of keys that the root does not
//! reach any more goes to the newest block that was written for the tree and has keys there; of
//! several that one transaction wrote, to the one that the extent tree still has. A node
//! says of the ranges between its children that nothing else is in them; so an item that was
//! removed comes back only where no newer node is left.
//!
//! # Invariants
//! - No key is in two pieces.
//! - Each block is looked into [`MOST_VISITS`] times at most, so that the work is bounded by the
//!   blocks that were found, whatever their pointers say.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use larder_format::{Key, Node};

use crate::blocks::{Block, Blocks, Pointer};
use crate::coverage::{ALL, Coverage};
use crate::missing::Missing;

/// How often a block is looked into: as part of the tree below its root, by itself, and for two
/// other parents.
const MOST_VISITS: u8 = 4;

/// The blocks that were written for a tree: those of one owner up to a generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) owner: u64,
    pub(crate) until: u64,
}

/// The items in a range of keys at or below a block.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) range: Range<Key>,
    pub(crate) block: Pointer,
    /// Whether the block has no items outside the range, and nothing below it is missing.
    pub(crate) is_whole: bool,
}

/// A tree put together.
#[derive(Debug)]
pub(crate) struct Attached {
    /// In the order of keys.
    pub(crate) pieces: Vec<Piece>,
    /// The ranges that the root does not reach, in the order of keys: older items may stand there,
    /// and items may be missing.
    pub(crate) lost: Vec<Range<Key>>,
}

impl Attached {
    /// Whether the root reaches this key.
    pub(crate) fn is_certain(&self, key: Key) -> bool {
        !self.lost.iter().any(|range| range.contains(&key))
    }

    /// Calls `visit` with each item, in the order of keys.
    pub(crate) fn for_each_item(&self, blocks: &Blocks, visit: &mut dyn FnMut(Key, &[u8])) {
        self.for_each_item_in(blocks, &ALL, visit);
    }

    /// The same for the items that have keys in `range`.
    pub(crate) fn for_each_item_in(
        &self,
        blocks: &Blocks,
        range: &Range<Key>,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) {
        let from = self.pieces.partition_point(|piece| piece.range.end <= range.start);
        for piece in self.pieces[from..].iter().take_while(|it| it.range.start < range.end) {
            let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
            visit_items(blocks, &piece.block, &part, visit);
        }
    }
}

fn visit_items(
    blocks: &Blocks,
    at: &Pointer,
    range: &Range<Key>,
    visit: &mut dyn FnMut(Key, &[u8]),
) {
    let Some(bytes) = blocks.read(at) else { return };
    let node = Node::from_checked(&bytes);
    if node.is_leaf() {
        let items = node.iter_items().filter(|(key, _)| range.contains(key));
        return items.for_each(|(key, data)| visit(key, data));
    }
    for (child, own) in children(node, range) {
        visit_items(blocks, &child, &own, visit);
    }
}

/// The children of a node and the ranges of keys that they have, as far as these lie in `range`.
fn children(node: Node<'_>, range: &Range<Key>) -> Vec<(Pointer, Range<Key>)> {
    let pointers = node.key_pointers();
    let starts = pointers.iter().map(|it| it.key.get());
    let ends = starts.clone().skip(1).chain([range.end]);
    let ranges = starts.zip(ends).map(|(start, end)| start.max(range.start)..end.min(range.end));
    let level = node.level();
    let children = pointers.iter().map(|it| Pointer::in_node(it, level)).zip(ranges);
    children.filter(|(_, own)| own.start < own.end).collect()
}

/// Addresses of the tree blocks that were in use in the last commit, as far as that is known.
pub(crate) type InUse = HashSet<u64>;

/// The order in which blocks of a tree were written. One that a transaction writes again gets
/// another address, most often a higher one; the extent tree has the last.
pub(crate) fn age(block: &Block, in_use: &InUse) -> (u64, bool, u64) {
    (block.generation, in_use.contains(&block.logical), block.logical)
}

/// Puts the tree together that begins at `root`, if that is known, of blocks from `sources`.
pub(crate) fn attach(
    blocks: &Blocks,
    missing: &mut Missing<'_>,
    root: Option<Pointer>,
    sources: &[Source],
    in_use: &InUse,
) -> Attached {
    let (pieces, taken, visits) = Default::default();
    let mut attach = Attach { blocks, missing, pieces, taken, visits };
    if let Some(root) = root {
        attach.descend(root, ALL);
    }
    let lost = attach.taken.free(&ALL);
    if !lost.is_empty() {
        attach.fill(sources, in_use);
    }
    let mut pieces = attach.pieces;
    pieces.sort_unstable_by_key(|piece| piece.range.start);
    Attached { pieces, lost }
}

struct Attach<'a, 'b> {
    blocks: &'a Blocks,
    missing: &'a mut Missing<'b>,
    pieces: Vec<Piece>,
    taken: Coverage,
    visits: HashMap<Pointer, u8>,
}

impl Attach<'_, '_> {
    /// Gives what is free to the blocks of `sources`, to the newest and highest first.
    fn fill(&mut self, sources: &[Source], in_use: &InUse) {
        let is_candidate = |owner: u64, generation: u64| {
            sources.iter().any(|it| it.owner == owner && generation <= it.until)
        };
        let all = self.blocks.all().iter().enumerate();
        let fitting = all.filter(|(_, it)| is_candidate(it.owner, it.generation));
        let mut candidates: Vec<usize> = fitting.map(|(at, _)| at).collect();
        let block = |at: &usize| &self.blocks.all()[*at];
        candidates.dedup_by_key(|at| block(at).pointer());
        let rank = |it: &Block| {
            let (generation, is_in_use, logical) = age(it, in_use);
            (generation, is_in_use, it.level, logical)
        };
        candidates.sort_by_key(|at| Reverse(rank(block(at))));
        for at in candidates {
            let pointer = block(&at).pointer();
            let first = block(&at).first.get();
            let Some(end) = self.end_of(pointer) else { continue };
            if first < end {
                self.descend(pointer, first..end);
            }
        }
    }

    /// The key after the last one below a block.
    fn end_of(&self, mut pointer: Pointer) -> Option<Key> {
        loop {
            let found = &self.blocks.all()[self.blocks.find(&pointer)?];
            if pointer.level == 0 {
                return found.last.get().successor();
            }
            // What is below the last child is not known if that is missing.
            let unknown = found.last.get();
            let bytes = self.blocks.read(&pointer)?;
            let last = *Node::from_checked(&bytes).key_pointers().last()?;
            let child = Pointer::in_node(&last, pointer.level);
            if self.blocks.find(&child).is_none() {
                return Some(unknown);
            }
            pointer = child;
        }
    }

    /// Takes what is free of `range` for the items there at or below a block, which has no others
    /// if `range` was not cut.
    fn descend(&mut self, pointer: Pointer, range: Range<Key>) {
        let free = self.taken.free(&range);
        if free.is_empty() || !self.may_visit(pointer) {
            return;
        }
        let is_uncut = free.len() == 1 && free[0] == range;
        if is_uncut && self.missing.at(pointer) == 0 {
            self.take(pointer, range, true);
        } else if pointer.level == 0 {
            if self.blocks.has(&pointer) {
                for part in free {
                    self.take(pointer, part, is_uncut);
                }
            }
        } else if let Some(bytes) = self.blocks.read(&pointer) {
            let node = Node::from_checked(&bytes);
            // Nothing is before the first child.
            if let Some(first) = node.first_key().filter(|first| range.start < *first) {
                for part in self.taken.free(&(range.start..first.min(range.end))) {
                    self.taken.take(part);
                }
            }
            for (child, own) in children(node, &range) {
                self.descend(child, own);
            }
        }
    }

    fn take(&mut self, block: Pointer, range: Range<Key>, is_whole: bool) {
        self.taken.take(range.clone());
        self.pieces.push(Piece { range, block, is_whole });
    }

    fn may_visit(&mut self, pointer: Pointer) -> bool {
        let visits = self.visits.entry(pointer).or_default();
        *visits = visits.saturating_add(1);
        *visits <= MOST_VISITS
    }
}
