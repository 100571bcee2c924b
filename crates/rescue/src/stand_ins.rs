//! Tree blocks that stand in for lost ones.
//!
//! Blocks that were found are served by their address and generation from where they lie on a
//! device. Above them are blocks that are made up, at addresses that no chunk has: nodes over what
//! [`attach`](crate::attach) put together, leaves with a part of an older one's items, and the
//! leaves of a new root tree.
//!
//! # Invariants
//! - A made-up block is one that [`Node::parse`] accepts, and has a right checksum.
//! - Memory: a key pointer for each piece of a damaged tree, and the items of the root tree. Sound
//!   trees, and sound parts of damaged ones, cost nothing.
//! - An item that cannot be is left out of its leaf; the others stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use larder_format::checksum::CHECKSUM_SIZE;
use larder_format::node::{
    BACKREF_REV_MIXED, BACKREF_REV_SHIFT, HEADER_FLAG_WRITTEN, HEADER_SIZE, Header,
    ITEM_HEADER_SIZE, ItemHeader, KEY_POINTER_SIZE, KeyPointer, MAX_LEVELS, leaf_data_size,
    max_key_pointers,
};
use larder_format::tree_check::{self, TreeCheckError};
use larder_format::{ItemType, Key, Logical, Node};
use larder_volume::StandIns;
use zerocopy::{FromZeros, IntoBytes};

use crate::attach::{Attached, InUse};
use crate::blocks::{Block, Blocks, Pointer};

/// The address of the first block that is made up. No device is so large.
const FIRST_MADE_UP: u64 = 1 << 62;

/// A block that is made up.
#[derive(Debug)]
enum MadeUp {
    /// A leaf with the items of another that have keys in a range.
    Part { of: Pointer, range: Range<Key> },
    /// A leaf or node.
    Whole(Box<[u8]>),
}

/// The blocks that were found, and those that are made up.
pub(crate) struct Stock {
    blocks: Arc<Blocks>,
    made_up: Vec<MadeUp>,
    /// Ranges of keys that are in doubt, by tree.
    doubts: BTreeMap<u64, Vec<Range<Key>>>,
}

/// A block, and the first key at or below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    key: Key,
    block: Pointer,
}

impl Stock {
    pub(crate) fn new(blocks: Arc<Blocks>) -> Self {
        Self { blocks, made_up: Vec::new(), doubts: BTreeMap::new() }
    }

    /// Makes a tree of what was put together. Returns its root; `None` if it has no items.
    pub(crate) fn make_tree(&mut self, tree: u64, attached: &Attached) -> Option<Pointer> {
        let mut children = Vec::new();
        for piece in &attached.pieces {
            let (of, range) = (piece.block, piece.range.clone());
            let Some(bytes) = self.blocks.read(&of) else { continue };
            let node = Node::from_checked(&bytes);
            if piece.is_whole || of.level > 0 {
                children.extend(node.first_key().map(|key| Child { key, block: of }));
            } else if let Some(key) = keys(node).find(|key| range.contains(key)) {
                let block = self.add(MadeUp::Part { of, range }, of.generation, 0);
                children.push(Child { key, block });
            }
        }
        self.make_nodes(tree, children)
    }

    /// Makes a tree of these items. Returns its root; `None` if there are none.
    pub(crate) fn make_leaves(
        &mut self,
        tree: u64,
        items: &BTreeMap<Key, Vec<u8>>,
    ) -> Option<Pointer> {
        let room = leaf_data_size(self.blocks.evidence.nodesize());
        let (mut children, mut leaf, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (key, data) in items.iter().filter(|(_, data)| data.len() + ITEM_HEADER_SIZE <= room) {
            let item_bytes = data.len() + ITEM_HEADER_SIZE;
            if bytes + item_bytes > room {
                children.extend(self.make_leaf(tree, &leaf));
                leaf.clear();
                bytes = 0;
            }
            leaf.push((*key, data.as_slice()));
            bytes += item_bytes;
        }
        children.extend(self.make_leaf(tree, &leaf));
        self.make_nodes(tree, children)
    }

    fn make_leaf(&mut self, tree: u64, items: &[(Key, &[u8])]) -> Option<Child> {
        let (key, _) = *items.first()?;
        let header = self.header(tree, 0);
        let generation = header.generation.get();
        let block = self.next(generation, 0);
        let bytes = self.leaf(Header { bytenr: block.logical.into(), ..header }, items);
        self.made_up.push(MadeUp::Whole(bytes));
        Some(Child { key, block })
    }

    /// Makes nodes above blocks of any level, in the order of keys. Returns the root.
    fn make_nodes(&mut self, tree: u64, mut children: Vec<Child>) -> Option<Pointer> {
        let most = max_key_pointers(self.blocks.evidence.nodesize());
        for level in 0..MAX_LEVELS as u8 {
            if children.len() < 2 {
                break;
            }
            let is_low = |child: &Child| child.block.level == level;
            let mut above = Vec::new();
            for run in children.chunk_by(|a, b| is_low(a) == is_low(b)) {
                if !is_low(&run[0]) {
                    above.extend_from_slice(run);
                    continue;
                }
                for chunk in run.chunks(most) {
                    above.push(self.make_node(tree, level + 1, chunk)?);
                }
            }
            children = above;
        }
        match children[..] {
            [Child { block, .. }] => Some(block),
            _ => None,
        }
    }

    fn make_node(&mut self, tree: u64, level: u8, children: &[Child]) -> Option<Child> {
        if usize::from(level) >= MAX_LEVELS {
            return None;
        }
        let header = self.header(tree, level);
        let block = self.next(header.generation.get(), level);
        let header = Header {
            bytenr: block.logical.into(),
            nritems: (children.len() as u32).into(),
            ..header
        };
        let mut bytes = vec![0; self.blocks.evidence.nodesize()];
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        for (slot, child) in children.iter().enumerate() {
            let pointer = KeyPointer {
                key: child.key.into(),
                blockptr: child.block.logical.into(),
                generation: child.block.generation.into(),
            };
            let at = HEADER_SIZE + slot * KEY_POINTER_SIZE;
            bytes[at..at + KEY_POINTER_SIZE].copy_from_slice(pointer.as_bytes());
        }
        self.seal(&mut bytes);
        self.made_up.push(MadeUp::Whole(bytes.into()));
        Some(Child { key: children[0].key, block })
    }

    fn header(&self, tree: u64, level: u8) -> Header {
        let superblock = &self.blocks.evidence.superblock;
        Header {
            fsid: superblock.metadata_uuid().into_bytes(),
            flags: (HEADER_FLAG_WRITTEN | BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into(),
            generation: superblock.generation,
            owner: tree.into(),
            level,
            ..Header::new_zeroed()
        }
    }

    /// A leaf with this header and these items, which fit.
    fn leaf(&self, header: Header, items: &[(Key, &[u8])]) -> Box<[u8]> {
        let mut bytes = vec![0; self.blocks.evidence.nodesize()];
        let header = Header { nritems: (items.len() as u32).into(), ..header };
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        let mut end = leaf_data_size(bytes.len());
        for (slot, (key, data)) in items.iter().enumerate() {
            let start = end - data.len();
            let item = ItemHeader {
                key: (*key).into(),
                offset: (start as u32).into(),
                size: (data.len() as u32).into(),
            };
            let at = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
            bytes[at..at + ITEM_HEADER_SIZE].copy_from_slice(item.as_bytes());
            bytes[HEADER_SIZE + start..HEADER_SIZE + end].copy_from_slice(data);
            end = start;
        }
        self.seal(&mut bytes);
        bytes.into()
    }

    /// Gives a block its checksum.
    fn seal(&self, bytes: &mut [u8]) {
        let checksum = self.blocks.evidence.superblock.checksum_type().compute_block(bytes);
        let stored = checksum.as_bytes();
        bytes[..CHECKSUM_SIZE].fill(0);
        bytes[..stored.len()].copy_from_slice(stored);
    }

    fn next(&self, generation: u64, level: u8) -> Pointer {
        let nodesize = self.blocks.evidence.nodesize() as u64;
        let logical = FIRST_MADE_UP + self.made_up.len() as u64 * nodesize;
        Pointer { logical, generation, level }
    }

    fn add(&mut self, block: MadeUp, generation: u64, level: u8) -> Pointer {
        let at = self.next(generation, level);
        self.made_up.push(block);
        at
    }

    /// Says that keys of a tree are in doubt.
    pub(crate) fn doubt(&mut self, tree: u64, ranges: impl IntoIterator<Item = Range<Key>>) {
        self.doubts.entry(tree).or_default().extend(ranges);
    }

    /// The ranges of keys in doubt, with their trees.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (u64, &Range<Key>)> {
        self.doubts.iter().flat_map(|(tree, ranges)| ranges.iter().map(|range| (*tree, range)))
    }

    /// Whether any key is in doubt.
    pub(crate) fn has_doubts(&self) -> bool {
        self.doubts.values().any(|ranges| !ranges.is_empty())
    }

    /// The block that is made up at this address.
    fn made_up(&self, logical: u64) -> Option<Box<[u8]>> {
        let nodesize = self.blocks.evidence.nodesize() as u64;
        let index = usize::try_from(logical.checked_sub(FIRST_MADE_UP)? / nodesize).ok()?;
        match self.made_up.get(index)? {
            MadeUp::Whole(bytes) => Some(bytes.clone()),
            MadeUp::Part { of, range } => {
                let bytes = self.blocks.read(of)?;
                let node = Node::from_checked(&bytes);
                let items = node.iter_items().filter(|(key, _)| range.contains(key));
                let header = Header { bytenr: logical.into(), ..*node.header() };
                Some(self.leaf(header, &items.collect::<Vec<_>>()))
            }
        }
    }

    /// Says that the items are in doubt that cannot be, in leaves of `trees`.
    pub(crate) fn doubt_bad_items(&mut self, trees: &BTreeSet<u64>, in_use: &InUse) {
        let blocks = self.blocks.clone();
        let is_read = |block: &&Block| {
            let is_in_use = in_use.is_empty() || in_use.contains(&block.logical);
            block.has_bad_item && is_in_use && trees.contains(&block.owner)
        };
        for block in blocks.all().iter().filter(is_read) {
            let Some(bytes) = blocks.read(&block.pointer()) else { continue };
            let mut bad = Vec::new();
            self.without_bad_items(&bytes, |error| {
                tracing::warn!("tree block {}: {error}: it is left out", block.logical);
                bad.extend(error.key);
            });
            let ranges = bad.iter().map(|key| *key..key.successor().unwrap_or(Key::MAX));
            // Snapshots may share the leaf.
            for tree in trees {
                self.doubt(*tree, ranges.clone());
            }
        }
    }

    /// The same leaf without items that cannot be, which `leave_out` is told; `None` if it has
    /// none.
    fn without_bad_items(
        &self,
        bytes: &[u8],
        mut leave_out: impl FnMut(TreeCheckError),
    ) -> Option<Box<[u8]>> {
        let context = tree_check::Context::new(&self.blocks.evidence.superblock);
        let mut mended: Option<Box<[u8]>> = None;
        loop {
            let node = Node::from_checked(mended.as_deref().unwrap_or(bytes));
            let Err(error) = tree_check::check_node(node, &context) else { return mended };
            let slot = error.slot.filter(|_| node.is_leaf())?;
            leave_out(error);
            let items = node.iter_items().enumerate().filter(|(at, _)| *at != slot);
            let items: Vec<_> = items.map(|(_, item)| item).collect();
            mended = Some(self.leaf(*node.header(), &items));
        }
    }
}

fn keys(node: Node<'_>) -> impl Iterator<Item = Key> {
    (0..node.nritems()).map(move |slot| node.key(slot))
}

impl StandIns for Stock {
    fn read(&self, logical: Logical, generation: u64, level: u8, buf: &mut [u8]) -> bool {
        let pointer = Pointer { logical: logical.0, generation, level };
        let found = self.made_up(logical.0).or_else(|| Some(self.blocks.read(&pointer)?.into()));
        let Some(found) = found else { return false };
        buf.copy_from_slice(self.without_bad_items(&found, drop).as_ref().unwrap_or(&found));
        true
    }

    fn doubts(&self, tree: u64, objectid: u64) -> bool {
        let first = Key { objectid, ..Key::MIN };
        let last = Key { objectid, ..Key::MAX };
        // The index of a directory says all that its hash entries say.
        let entries = Key::new(objectid, ItemType::DIR_ITEM, 0);
        let after = Key::new(objectid, ItemType(ItemType::DIR_ITEM.0 + 1), 0);
        let is_hit = |range: &Range<Key>| {
            let has_it = range.start <= last && first < range.end;
            has_it && !(entries <= range.start && range.end <= after)
        };
        self.doubts.get(&tree).is_some_and(|ranges| ranges.iter().any(is_hit))
    }
}

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made_up = self.made_up.len();
        f.debug_struct("Stock").field("made_up", &made_up).finish_non_exhaustive()
    }
}
