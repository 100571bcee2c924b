//! Builds committed trees in memory, block by block, without the code under test.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod space;

use std::sync::Arc;

use larder_btree::{BlockCache, MemoryStore, Tree, TreeRoot, TreeView};
use larder_format::node::{
    HEADER_SIZE, Header, ITEM_HEADER_SIZE, ItemHeader, KEY_POINTER_SIZE, KeyPointer,
};
use larder_format::{ItemType, Key, Logical};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) const TREE: u64 = 5;
pub(crate) const GENERATION: u64 = 7;

pub(crate) type Item = (Key, Vec<u8>);

/// A key whose order is that of `number`, over several objects and types.
pub(crate) fn key(number: u64) -> Key {
    Key::new(256 + number / 64, ItemType(1 + (number % 64 / 16) as u8), number % 16 * 3)
}

/// `count` items of up to `most_bytes` bytes with even numbers.
pub(crate) fn items(count: u64, most_bytes: usize) -> Vec<Item> {
    let data = |n: u64| vec![n as u8; (n as usize).wrapping_mul(7919) % (most_bytes + 1)];
    (0..count).map(|n| (key(2 * n), data(n))).collect()
}

/// A tree in a store of its own, with its blocks.
pub(crate) struct Built {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) root: TreeRoot,
    /// Address and first key of every block by level, from the leaves up.
    pub(crate) levels: Vec<Vec<(Key, Logical)>>,
}

impl Built {
    pub(crate) fn tree(&self) -> Tree {
        self.tree_with_cache(1 << 24)
    }

    /// The same tree for readers that know that it cannot change, and for others.
    pub(crate) fn views(&self) -> [TreeView; 2] {
        let live =
            space::forest_over(self.store.clone(), GENERATION + 1, 0).open_tree(self.root, 0);
        [TreeView::Committed(self.tree()), TreeView::Live(live)]
    }

    pub(crate) fn tree_with_cache(&self, limit_bytes: usize) -> Tree {
        Tree::new(Arc::new(BlockCache::new(self.store.clone(), limit_bytes)), self.root)
    }
}

/// Builds a tree of `items`, which ascend, with at most `fan_out` items or children in a block.
pub(crate) fn build(nodesize: usize, fan_out: usize, items: &[Item]) -> Built {
    let store = Arc::new(MemoryStore::new(nodesize));
    let mut next = Logical(1 << 20);
    let mut place = || {
        let logical = next;
        next = Logical(next.0 + nodesize as u64);
        logical
    };
    let mut level = Vec::new();
    let mut rest = items;
    loop {
        let (taken, others) = rest.split_at(items_that_fit(nodesize, fan_out, rest));
        rest = others;
        let logical = place();
        store.write(leaf(nodesize, logical, taken));
        level.push((taken.first().map_or(Key::MIN, |item| item.0), logical));
        if rest.is_empty() {
            break;
        }
    }
    let fan_out = fan_out.min((nodesize - HEADER_SIZE) / KEY_POINTER_SIZE);
    let mut levels = vec![level];
    while levels[levels.len() - 1].len() > 1 {
        let height = levels.len() as u8;
        let mut above = Vec::new();
        for children in levels[levels.len() - 1].chunks(fan_out) {
            let logical = place();
            store.write(node(nodesize, logical, height, children));
            above.push((children[0].0, logical));
        }
        levels.push(above);
    }
    let logical = levels[levels.len() - 1][0].1;
    let level = (levels.len() - 1) as u8;
    let root = TreeRoot { tree: TREE, logical, level, generation: GENERATION };
    Built { store, root, levels }
}

fn items_that_fit(nodesize: usize, fan_out: usize, items: &[Item]) -> usize {
    let mut free = nodesize - HEADER_SIZE;
    let fits = |item: &&Item| {
        let needed = ITEM_HEADER_SIZE + item.1.len();
        let fits = needed <= free;
        free -= needed.min(free);
        fits
    };
    items.iter().take(fan_out).take_while(fits).count()
}

fn header(logical: Logical, level: u8, nritems: usize) -> Header {
    let mut header = Header::new_zeroed();
    header.bytenr = logical.0.into();
    header.generation = GENERATION.into();
    header.owner = TREE.into();
    header.nritems = (nritems as u32).into();
    header.level = level;
    header
}

fn leaf(nodesize: usize, logical: Logical, items: &[Item]) -> Vec<u8> {
    let mut bytes = vec![0; nodesize];
    bytes[..HEADER_SIZE].copy_from_slice(header(logical, 0, items.len()).as_bytes());
    let mut end = nodesize - HEADER_SIZE;
    for (slot, (key, data)) in items.iter().enumerate() {
        end -= data.len();
        let item = ItemHeader {
            key: (*key).into(),
            offset: (end as u32).into(),
            size: (data.len() as u32).into(),
        };
        bytes[HEADER_SIZE + slot * ITEM_HEADER_SIZE..][..ITEM_HEADER_SIZE]
            .copy_from_slice(item.as_bytes());
        bytes[HEADER_SIZE + end..][..data.len()].copy_from_slice(data);
    }
    bytes
}

fn node(nodesize: usize, logical: Logical, level: u8, children: &[(Key, Logical)]) -> Vec<u8> {
    let mut bytes = vec![0; nodesize];
    bytes[..HEADER_SIZE].copy_from_slice(header(logical, level, children.len()).as_bytes());
    for (slot, (key, child)) in children.iter().enumerate() {
        let pointer = KeyPointer {
            key: (*key).into(),
            blockptr: child.0.into(),
            generation: GENERATION.into(),
        };
        bytes[HEADER_SIZE + slot * KEY_POINTER_SIZE..][..KEY_POINTER_SIZE]
            .copy_from_slice(pointer.as_bytes());
    }
    bytes
}
