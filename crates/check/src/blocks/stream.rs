//! Walking a tree leaf by leaf, in order of keys.

use larder_format::{Key, Node};

use super::forest::{BlockFacts, Forest, TreeRoot};
use super::reader::{BlockReader, ExpectedBlock};
use crate::context::Context;
use crate::evidence::Evidence;

/// An item and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) tree: u64,
    /// Logical address of the leaf.
    pub(crate) leaf: u64,
    pub(crate) key: Key,
    pub(crate) data: &'a [u8],
}

impl Item<'_> {
    /// Adds a finding about this item.
    pub(crate) fn find(&self, context: &Context<'_>, evidence: impl Into<Evidence>) {
        context.find_item(self.tree, self.leaf, self.key, evidence);
    }
}

/// Calls `visit` with every readable leaf of a tree, in order of keys, and records in the forest
/// the facts of the leaves. Returns whether all of the tree was read.
pub(crate) fn for_each_leaf(
    context: &Context<'_>,
    forest: &mut Forest,
    root: &TreeRoot,
    mut visit: impl FnMut(&ExpectedBlock, &Node<'_>),
) -> bool {
    let (leaves, mut is_whole) = forest.leaves_of(root);
    let mut reader = BlockReader::new(context);
    for batch in leaves.chunks(context.batch_blocks()) {
        let wanted: Vec<ExpectedBlock> = batch.iter().map(|id| forest.wanted(*id)).collect();
        reader.read(&wanted);
        for (index, wanted) in wanted.iter().enumerate() {
            let node = reader.node(index);
            forest.record(wanted.block, node.as_ref().map(BlockFacts::from));
            match node {
                Some(node) => visit(wanted, &node),
                None => is_whole = false,
            }
        }
        context.progress.advance((batch.len() * context.nodesize) as u64);
    }
    is_whole
}

/// Calls `visit` with every item of a tree, as [`for_each_leaf`] does with leaves.
pub(crate) fn for_each_item(
    context: &Context<'_>,
    forest: &mut Forest,
    root: &TreeRoot,
    mut visit: impl FnMut(Item<'_>),
) -> bool {
    let tree = root.tree;
    for_each_leaf(context, forest, root, |wanted, node| {
        for (key, data) in node.iter_items() {
            visit(Item { tree, leaf: wanted.logical, key, data });
        }
    })
}

/// Calls `visit` with every item of a tree that was walked before. Reports nothing.
pub(crate) fn for_each_item_again(
    context: &Context<'_>,
    forest: &Forest,
    root: &TreeRoot,
    mut visit: impl FnMut(Item<'_>),
) {
    let tree = root.tree;
    let mut reader = BlockReader::quiet(context);
    for batch in forest.leaves_of(root).0.chunks(context.batch_blocks()) {
        let wanted: Vec<ExpectedBlock> = batch.iter().map(|id| forest.wanted(*id)).collect();
        reader.read(&wanted);
        for (index, wanted) in wanted.iter().enumerate() {
            let Some(node) = reader.node(index) else { continue };
            for (key, data) in node.iter_items() {
                visit(Item { tree, leaf: wanted.logical, key, data });
            }
        }
    }
}

/// A part of a tree could not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable;

/// The data of one item of a tree that was walked before. Reports nothing.
pub(crate) fn find_item(
    context: &Context<'_>,
    forest: &Forest,
    root: &TreeRoot,
    key: Key,
) -> Result<Option<Vec<u8>>, Unreadable> {
    if !forest.is_sound_root(root) {
        return Err(Unreadable);
    }
    let mut id = root.block;
    while forest.block(id).level > 0 {
        let after = forest.pointers_of(id).partition_point(|pointer| pointer.key <= key);
        let Some(slot) = after.checked_sub(1) else { return Ok(None) };
        id = forest.sound_child(id, slot).ok_or(Unreadable)?;
    }
    let mut reader = BlockReader::quiet(context);
    reader.read(&[forest.wanted(id)]);
    let leaf = reader.node(0).ok_or(Unreadable)?;
    Ok(leaf.search(key).ok().map(|slot| leaf.item_data(slot).to_vec()))
}

/// The first item from a key on, in a tree that was walked before, unless a block cannot be read.
/// Reports nothing.
pub(crate) fn find_item_from(
    context: &Context<'_>,
    forest: &Forest,
    root: &TreeRoot,
    key: Key,
) -> Option<(Key, Vec<u8>)> {
    if !forest.is_sound_root(root) {
        return None;
    }
    let mut reader = BlockReader::quiet(context);
    let mut from = key;
    // If all items of a leaf are before the key, the item is in the next leaf.
    for _ in 0..2 {
        let (mut id, mut next) = (root.block, None);
        while forest.block(id).level > 0 {
            let pointers = forest.pointers_of(id);
            let after = pointers.partition_point(|pointer| pointer.key <= from);
            next = pointers.get(after.max(1)).map(|pointer| pointer.key).or(next);
            id = forest.sound_child(id, after.saturating_sub(1))?;
        }
        reader.read(&[forest.wanted(id)]);
        let leaf = reader.node(0)?;
        let slot = leaf.search(key).unwrap_or_else(|slot| slot);
        if slot < leaf.nritems() {
            return Some((leaf.key(slot), leaf.item_data(slot).to_vec()));
        }
        from = next?;
    }
    None
}
