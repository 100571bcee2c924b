//! Changing a tree by writing anew only the blocks on the paths to what changes.
//!
//! # Invariants
//! - Blocks that are sound and have no change below stay where they are; other trees that share
//!   them see nothing of the change.
//! - A new block lies where nothing of the old state lies.
//! - Every block of the result is accepted by the kernel's rules: an item that is not is dropped,
//!   and noted.

use std::collections::BTreeMap;
use std::ops::Bound;

use larder_format::node::{
    BACKREF_REV_MIXED, BACKREF_REV_SHIFT, HEADER_FLAG_WRITTEN, HEADER_SIZE, Header,
    ITEM_HEADER_SIZE, ItemHeader, KeyPointer, max_key_pointers,
};
use larder_format::{Key, Logical};
use zerocopy::IntoBytes;

use super::block::{Block, Blocks, Content, Pointer};
use super::error::RepairError;
use super::space::Free;

/// Changes of items by key; `None` removes one.
pub(super) type Edits = BTreeMap<Key, Option<Vec<u8>>>;

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) logical: u64,
    pub(super) generation: u64,
    pub(super) level: u8,
}

/// Writes tree blocks.
pub(super) struct Output<'a> {
    pub(super) blocks: &'a Blocks<'a>,
    /// Of the blocks that are written.
    pub(super) generation: u64,
    pub(super) chunk_tree_uuid: [u8; 16],
}

impl Output<'_> {
    /// Writes a block at an address.
    pub(super) fn write(
        &self,
        logical: u64,
        owner: u64,
        level: u8,
        content: &Content,
    ) -> Result<Pointer, RepairError> {
        let volume = self.blocks.volume;
        let bytes = self.bytes(logical, owner, level, content);
        volume.write(Logical(logical), &bytes)?;
        let key = match content {
            Content::Leaf(items) => items.first().map_or(Key::MIN, |(key, _)| *key),
            Content::Node(pointers) => pointers[0].key,
        };
        Ok(Pointer { key, logical, generation: self.generation })
    }

    fn bytes(&self, logical: u64, owner: u64, level: u8, content: &Content) -> Vec<u8> {
        let volume = self.blocks.volume;
        let mut bytes = vec![0; volume.nodesize() as usize];
        let count = match content {
            Content::Leaf(items) => {
                put_items(&mut bytes, items);
                items.len()
            }
            Content::Node(pointers) => {
                put_pointers(&mut bytes, pointers);
                pointers.len()
            }
        };
        let header = Header {
            csum: [0; 32],
            fsid: volume.superblock().metadata_uuid().into_bytes(),
            bytenr: logical.into(),
            flags: (HEADER_FLAG_WRITTEN | BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into(),
            chunk_tree_uuid: self.chunk_tree_uuid,
            generation: self.generation.into(),
            owner: owner.into(),
            nritems: (count as u32).into(),
            level,
        };
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        let csum = volume.checksum_type().compute_block(&bytes);
        bytes[..32].copy_from_slice(&csum.padded());
        bytes
    }

    /// Drops the items of a tree that the kernel refuses.
    pub(super) fn sieve_tree(&self, tree: u64, items: &mut BTreeMap<Key, Vec<u8>>) {
        let all = std::mem::take(items).into_iter().collect();
        for mut leaf in leaves(all, self.blocks.nodesize()) {
            self.sieve(tree, &mut leaf);
            items.extend(leaf);
        }
    }

    /// Drops the items that the kernel refuses.
    fn sieve(&self, owner: u64, items: &mut Vec<(Key, Vec<u8>)>) {
        loop {
            let content = Content::Leaf(std::mem::take(items));
            let verdict = self.blocks.accepts(&self.bytes(0, owner, 0, &content));
            let Content::Leaf(kept) = content else { unreachable!("it is a leaf") };
            *items = kept;
            let Err(Some(slot)) = verdict else { return };
            let (key, _) = items.remove(slot);
            self.blocks.note(format!("tree {owner}: item {key} is dropped: it is invalid"));
        }
    }
}

fn put_items(bytes: &mut [u8], items: &[(Key, Vec<u8>)]) {
    let mut end = bytes.len() - HEADER_SIZE;
    for (slot, (key, data)) in items.iter().enumerate() {
        end -= data.len();
        let (offset, size) = ((end as u32).into(), (data.len() as u32).into());
        let header = ItemHeader { key: (*key).into(), offset, size };
        let at = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
        bytes[at..at + ITEM_HEADER_SIZE].copy_from_slice(header.as_bytes());
        bytes[HEADER_SIZE + end..][..data.len()].copy_from_slice(data);
    }
}

fn put_pointers(bytes: &mut [u8], pointers: &[Pointer]) {
    let places = bytes[HEADER_SIZE..].chunks_exact_mut(size_of::<KeyPointer>());
    for (place, pointer) in places.zip(pointers) {
        let Pointer { key, logical, generation } = *pointer;
        let pointer =
            KeyPointer { key: key.into(), blockptr: logical.into(), generation: generation.into() };
        place.copy_from_slice(pointer.as_bytes());
    }
}

/// Cuts items into leaves, each as full as it gets.
pub(super) fn leaves(items: Vec<(Key, Vec<u8>)>, nodesize: usize) -> Vec<Vec<(Key, Vec<u8>)>> {
    let room = nodesize - HEADER_SIZE;
    let (mut cut, mut leaf, mut taken) = (Vec::new(), Vec::new(), 0);
    for (key, data) in items {
        let len = ITEM_HEADER_SIZE + data.len();
        if taken + len > room && !leaf.is_empty() {
            cut.push(std::mem::take(&mut leaf));
            taken = 0;
        }
        taken += len;
        leaf.push((key, data));
    }
    cut.extend((!leaf.is_empty()).then_some(leaf));
    cut
}

/// From a key to before another, or to the end.
type KeyRange = (Key, Option<Key>);

/// One change of one tree.
pub(super) struct Update<'a> {
    pub(super) output: &'a Output<'a>,
    pub(super) tree: u64,
    pub(super) edits: &'a Edits,
    pub(super) free: &'a mut Free,
    /// Ranges of keys whose blocks are lost.
    pub(super) lost: Vec<KeyRange>,
    /// Items outside of the range that their leaf has.
    strays: Edits,
}

impl<'a> Update<'a> {
    /// Applies the edits to the tree at `root`, and returns the new root.
    pub(super) fn run(
        output: &'a Output<'a>,
        tree: u64,
        root: Root,
        edits: &'a Edits,
        free: &'a mut Free,
    ) -> Result<(Root, Vec<KeyRange>), RepairError> {
        let mut update = Self { output, tree, edits, free, lost: Vec::new(), strays: Edits::new() };
        let mut new = update.grow(root)?;
        let strays = std::mem::take(&mut update.strays);
        let lost = std::mem::take(&mut update.lost);
        if !strays.is_empty() {
            let mut update = Update {
                output,
                tree,
                edits: &strays,
                free: update.free,
                lost: Vec::new(),
                strays: Edits::new(),
            };
            new = update.grow(new)?;
        }
        Ok((new, lost))
    }

    /// Writes a tree of these items, which are in order.
    pub(super) fn whole(
        output: &'a Output<'a>,
        tree: u64,
        items: Vec<(Key, Vec<u8>)>,
        free: &'a mut Free,
    ) -> Result<Root, RepairError> {
        static NONE: Edits = Edits::new();
        let (lost, strays) = (Vec::new(), Edits::new());
        let mut update = Self { output, tree, edits: &NONE, free, lost, strays };
        let leaves = update.write_leaves(items)?;
        update.close(0, leaves)
    }

    fn grow(&mut self, root: Root) -> Result<Root, RepairError> {
        let at = Pointer { key: Key::MIN, logical: root.logical, generation: root.generation };
        let mut level = root.level;
        let mut found = self.block(level, at, Key::MIN, None)?;
        if found.is_empty() {
            level = 0;
            // What is to be added all the same.
            let added = self.edits.iter().filter_map(|(key, data)| Some((*key, data.clone()?)));
            found = self.write_leaves(added.collect())?;
        }
        self.close(level, found)
    }

    /// The root above blocks of one level.
    fn close(&mut self, mut level: u8, mut found: Vec<Pointer>) -> Result<Root, RepairError> {
        if found.is_empty() {
            found = vec![self.write(0, &Content::Leaf(Vec::new()))?];
        }
        while found.len() > 1 {
            level += 1;
            found = self.write_nodes(level, &found)?;
        }
        let Pointer { logical, generation, .. } = found[0];
        Ok(Root { logical, generation, level })
    }

    fn write(&mut self, level: u8, content: &Content) -> Result<Pointer, RepairError> {
        let logical = self.free.take(self.tree)?;
        self.output.write(logical, self.tree, level, content)
    }

    fn write_leaves(
        &mut self,
        mut items: Vec<(Key, Vec<u8>)>,
    ) -> Result<Vec<Pointer>, RepairError> {
        let nodesize = self.output.blocks.nodesize();
        let too_long =
            |item: &(Key, Vec<u8>)| item.1.len() > nodesize - HEADER_SIZE - ITEM_HEADER_SIZE;
        items.retain(|item| !too_long(item));
        let mut written = Vec::new();
        for mut leaf in leaves(items, nodesize) {
            self.output.sieve(self.tree, &mut leaf);
            if !leaf.is_empty() {
                written.push(self.write(0, &Content::Leaf(leaf))?);
            }
        }
        Ok(written)
    }

    fn write_nodes(
        &mut self,
        level: u8,
        pointers: &[Pointer],
    ) -> Result<Vec<Pointer>, RepairError> {
        let most = max_key_pointers(self.output.blocks.nodesize());
        // Parts of equal length, so that no node has one child only.
        let parts = pointers.len().div_ceil(most).max(1);
        let each = pointers.len().div_ceil(parts).max(1);
        let parts = pointers.chunks(each);
        parts.map(|part| self.write(level, &Content::Node(part.to_vec()))).collect()
    }

    /// What takes the place of a block whose keys lie from `first` up to `end`.
    fn block(
        &mut self,
        level: u8,
        at: Pointer,
        first: Key,
        end: Option<Key>,
    ) -> Result<Vec<Pointer>, RepairError> {
        let Some(block) = self.output.blocks.read(self.tree, level, &at) else {
            self.lost.push((first, end));
            return Ok(Vec::new());
        };
        match block {
            Block { content: Content::Leaf(items), is_sound, generation } => {
                self.leaf(items, is_sound, Pointer { generation, ..at }, first, end)
            }
            Block { content: Content::Node(children), is_sound, .. } => {
                let mut below = Vec::new();
                for (slot, child) in children.iter().enumerate() {
                    let from = if slot == 0 { first } else { child.key.max(first) };
                    let to = children.get(slot + 1).map(|next| next.key).or(end);
                    below.extend(self.block(level - 1, *child, from, to)?);
                }
                if is_sound && below == children {
                    return Ok(vec![Pointer { key: children[0].key, ..at }]);
                }
                below.sort_by_key(|pointer| pointer.key);
                if below.is_empty() { Ok(below) } else { self.write_nodes(level, &below) }
            }
        }
    }

    fn leaf(
        &mut self,
        items: Vec<(Key, Vec<u8>)>,
        is_sound: bool,
        at: Pointer,
        first: Key,
        end: Option<Key>,
    ) -> Result<Vec<Pointer>, RepairError> {
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let is_empty_range = end.is_some_and(|end| end <= first);
        let edits: Vec<(Key, Option<Vec<u8>>)> = if is_empty_range {
            Vec::new()
        } else {
            let range = self.edits.range((Bound::Included(first), upper));
            range.map(|(key, data)| (*key, data.clone())).collect()
        };
        let is_inside = |key: &Key| *key >= first && end.is_none_or(|end| *key < end);
        let strays = items.iter().any(|(key, _)| !is_inside(key));
        if is_sound && edits.is_empty() && !strays && !items.is_empty() {
            return Ok(vec![Pointer { key: items[0].0, ..at }]);
        }
        let mut kept = BTreeMap::new();
        for (key, data) in items {
            if is_inside(&key) {
                kept.insert(key, data);
            } else if !self.edits.contains_key(&key) {
                self.strays.insert(key, Some(data));
            }
        }
        for (key, data) in edits {
            match data {
                Some(data) => drop(kept.insert(key, data)),
                None => drop(kept.remove(&key)),
            }
        }
        self.write_leaves(kept.into_iter().collect())
    }
}
