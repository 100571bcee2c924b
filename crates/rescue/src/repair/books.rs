//! The trees that say what space is used for, built anew from what trees refer to: the extent tree,
//! the block group tree, and the free space tree.
//!
//! These trees have blocks of their own, which they list. So their size is found first, by counting
//! until it no longer grows; then they are written.
//!
//! # Invariants
//! - Every block and every data extent in use has one item, with exactly its references.
//! - Every chunk has one block group, whose used bytes are those of its extents.

use std::collections::BTreeMap;

use larder_format::item::{
    BackRef, BlockGroupItem, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK,
    ExtentItem, FreeSpaceInfo, TreeBlockInfo,
};
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE, max_key_pointers};
use larder_format::objectid::{
    BLOCK_GROUP_TREE, EXTENT_TREE, FIRST_CHUNK_TREE, FREE_SPACE_TREE, ROOT_TREE,
};
use larder_format::{ItemType, Key};
use larder_volume::Volume;
use zerocopy::IntoBytes;

use super::block::{Content, Pointer};
use super::error::RepairError;
use super::references::References;
use super::space::{Free, Ranges};
use super::update::{Output, Root, leaves};

/// How often sizes are counted before that is given up. A few times are enough.
const MOST_COUNTS: usize = 50;

/// A tree that is written as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    logical: u64,
    tree: u64,
    level: u8,
    first_key: Key,
}

type Items = Vec<(Key, Vec<u8>)>;

/// What is written at last, in one go.
pub(super) struct Books<'a> {
    pub(super) output: &'a Output<'a>,
    pub(super) references: &'a References,
    /// The subvolumes that data extents are charged to, by their start.
    pub(super) owners: &'a BTreeMap<u64, u64>,
    pub(super) has_skinny_metadata: bool,
    pub(super) has_group_tree: bool,
    pub(super) has_free_space_tree: bool,
}

/// The new trees.
pub(super) struct Written {
    /// By id of the tree.
    pub(super) roots: BTreeMap<u64, Root>,
    /// Bytes used in all block groups.
    pub(super) used_bytes: u64,
}

impl Books<'_> {
    /// Builds the trees, and the root tree of `root_items` besides. `set_root` puts the root of a
    /// tree into the items of the root tree, without changing their lengths.
    pub(super) fn write(
        &self,
        root_items: &mut BTreeMap<Key, Vec<u8>>,
        free: &Free,
        set_root: impl Fn(&mut BTreeMap<Key, Vec<u8>>, u64, Root),
    ) -> Result<Written, RepairError> {
        let mut own: Vec<Planned> = Vec::new();
        for _ in 0..MOST_COUNTS {
            let trees = self.trees(root_items, &own);
            let planned = self.plan(&trees, free)?;
            if planned == own {
                return self.finish(&own, trees, root_items, set_root);
            }
            own = planned;
        }
        Err(RepairError::Unsettled)
    }

    /// The items of each tree, if the blocks `own` are in use besides.
    fn trees(&self, root_items: &BTreeMap<Key, Vec<u8>>, own: &[Planned]) -> Vec<(u64, Items)> {
        let (extents, used) = self.extents(own);
        let groups = self.groups(&used);
        let mut trees: Vec<(u64, Items)> = Vec::new();
        let root_items = root_items.iter().map(|(key, data)| (*key, data.clone())).collect();
        trees.push((ROOT_TREE, root_items));
        let mut extents = extents;
        if self.has_group_tree {
            trees.push((BLOCK_GROUP_TREE, groups));
        } else {
            extents.extend(groups);
            extents.sort_by_key(|item| item.0);
        }
        trees.push((EXTENT_TREE, extents));
        if self.has_free_space_tree {
            trees.push((FREE_SPACE_TREE, self.free_space(&used)));
        }
        trees
    }

    /// The blocks that the trees take.
    fn plan(&self, trees: &[(u64, Items)], free: &Free) -> Result<Vec<Planned>, RepairError> {
        let mut free = free.clone();
        let mut planned = Vec::new();
        for (tree, items) in trees {
            for (level, keys) in shape(items, self.output.blocks.nodesize()).into_iter().enumerate()
            {
                for first_key in keys {
                    let logical = free.take(*tree)?;
                    planned.push(Planned { logical, tree: *tree, level: level as u8, first_key });
                }
            }
        }
        Ok(planned)
    }

    fn finish(
        &self,
        own: &[Planned],
        trees: Vec<(u64, Items)>,
        root_items: &mut BTreeMap<Key, Vec<u8>>,
        set_root: impl Fn(&mut BTreeMap<Key, Vec<u8>>, u64, Root),
    ) -> Result<Written, RepairError> {
        let mut roots = BTreeMap::new();
        let (_, used) = self.extents(own);
        // The root tree last: it names the others.
        let (root_tree, others): (Vec<_>, Vec<_>) =
            trees.into_iter().partition(|(tree, _)| *tree == ROOT_TREE);
        for (tree, items) in others {
            let root = self.write_tree(own, tree, items)?;
            set_root(root_items, tree, root);
            roots.insert(tree, root);
        }
        drop(root_tree);
        let items = root_items.iter().map(|(key, data)| (*key, data.clone())).collect();
        roots.insert(ROOT_TREE, self.write_tree(own, ROOT_TREE, items)?);
        let used_bytes = used.iter().map(|(_, len_bytes)| len_bytes).sum();
        Ok(Written { roots, used_bytes })
    }

    fn write_tree(&self, own: &[Planned], tree: u64, items: Items) -> Result<Root, RepairError> {
        let nodesize = self.output.blocks.nodesize();
        let mut places = own.iter().filter(|planned| planned.tree == tree);
        let mut place = || places.next().expect("as many as were counted").logical;
        let mut below: Vec<Pointer> = Vec::new();
        for leaf in leaves(items, nodesize) {
            below.push(self.output.write(place(), tree, 0, &Content::Leaf(leaf))?);
        }
        if below.is_empty() {
            below.push(self.output.write(place(), tree, 0, &Content::Leaf(Vec::new()))?);
        }
        let mut level = 0;
        while below.len() > 1 {
            level += 1;
            let parts = below.chunks(max_key_pointers(nodesize)).map(<[Pointer]>::to_vec);
            let write = |part| self.output.write(place(), tree, level, &Content::Node(part));
            below = parts.map(write).collect::<Result<_, _>>()?;
        }
        let Pointer { logical, generation, .. } = below[0];
        Ok(Root { logical, generation, level })
    }

    /// The items of extents, and the ranges (start, bytes) that they use, both in order.
    fn extents(&self, own: &[Planned]) -> (Items, Vec<(u64, u64)>) {
        let nodesize = self.output.blocks.nodesize() as u64;
        let mut own: Vec<&Planned> = own.iter().collect();
        own.sort_unstable_by_key(|planned| planned.logical);
        let (mut items, mut used) = (Items::new(), Vec::new());
        let mut blocks = self.references.blocks.iter().peekable();
        let mut data = self.references.data.iter().peekable();
        let mut own = own.into_iter().peekable();
        loop {
            let next = [
                blocks.peek().map(|it| it.logical),
                data.peek().map(|it| it.start),
                own.peek().map(|it| it.logical),
            ];
            let Some(at) = next.iter().flatten().min().copied() else { break };
            if next[0] == Some(at) {
                let block = blocks.next().expect("was seen");
                let full = if block.is_full { EXTENT_FLAG_FULL_BACKREF } else { 0 };
                let references = self.references_of(at);
                let head = (block.generation, EXTENT_FLAG_TREE_BLOCK | full);
                let place = Some((block.level, block.first_key));
                self.put(&mut items, at, place, nodesize, head, &references);
                used.push((at, nodesize));
            } else if next[1] == Some(at) {
                let extent = data.next().expect("was seen");
                let mut references = self.references_of(at);
                if let Some(root) = self.owners.get(&at) {
                    references.insert(0, BackRef::Owner { root: *root });
                }
                let head = (extent.generation, EXTENT_FLAG_DATA);
                self.put(&mut items, at, None, extent.len_bytes, head, &references);
                used.push((at, extent.len_bytes));
            } else {
                let block = own.next().expect("was seen");
                let reference = [BackRef::TreeBlock { root: block.tree }];
                let head = (self.output.generation, EXTENT_FLAG_TREE_BLOCK);
                let place = Some((block.level, block.first_key));
                self.put(&mut items, at, place, nodesize, head, &reference);
                used.push((at, nodesize));
            }
        }
        items.sort_by_key(|item| item.0);
        items.dedup_by_key(|item| item.0);
        (items, used)
    }

    /// The references to what is at an address, equal ones added up.
    fn references_of(&self, at: u64) -> Vec<BackRef> {
        let all = &self.references.of;
        let first = all.partition_point(|(address, _)| *address < at);
        let own = all[first..].iter().take_while(|(address, _)| *address == at);
        let mut joined: Vec<BackRef> = Vec::new();
        for (_, reference) in own {
            match (joined.last_mut(), reference) {
                (
                    Some(BackRef::Data { root, objectid, offset, count }),
                    BackRef::Data { root: r, objectid: o, offset: f, .. },
                ) if (*root, *objectid, *offset) == (*r, *o, *f) => *count += 1,
                (
                    Some(BackRef::SharedData { parent, count }),
                    BackRef::SharedData { parent: p, .. },
                ) if parent == p => *count += 1,
                (Some(last), reference) if last == reference => {}
                _ => joined.push(*reference),
            }
        }
        joined
    }

    /// Adds the items of an extent. References beyond the item's room have items of their own.
    fn put(
        &self,
        items: &mut Items,
        at: u64,
        block: Option<(u8, Key)>,
        len_bytes: u64,
        (generation, flags): (u64, u64),
        references: &[BackRef],
    ) {
        let most = ((self.output.blocks.nodesize() - HEADER_SIZE) >> 4) - ITEM_HEADER_SIZE;
        let refs: u64 = references.iter().map(|it| u64::from(it.count())).sum();
        let head =
            ExtentItem { refs: refs.into(), generation: generation.into(), flags: flags.into() };
        let mut data = head.as_bytes().to_vec();
        let key = match block {
            Some((level, _)) if self.has_skinny_metadata => {
                Key::new(at, ItemType::METADATA_ITEM, u64::from(level))
            }
            Some((level, key)) => {
                data.extend(TreeBlockInfo { key: key.into(), level }.as_bytes());
                Key::new(at, ItemType::EXTENT_ITEM, len_bytes)
            }
            None => Key::new(at, ItemType::EXTENT_ITEM, len_bytes),
        };
        let fitting = references.iter().scan(data.len(), |len, reference| {
            *len += reference.inline_len_bytes();
            (*len <= most).then_some(())
        });
        let inline = fitting.count();
        references[..inline].iter().for_each(|reference| reference.write_inline(&mut data));
        items.push((key, data));
        let mut used: Vec<Key> = Vec::new();
        for reference in &references[inline..] {
            let mut key = Key::new(at, reference.item_type(), reference.sequence());
            // Two references may have one hash.
            while used.contains(&key) {
                key.offset = key.offset.wrapping_add(1);
            }
            used.push(key);
            items.push((key, keyed(reference)));
        }
    }

    fn groups(&self, used: &[(u64, u64)]) -> Items {
        let chunks = self.output.blocks.volume.chunks();
        let group = |chunk: &std::sync::Arc<larder_volume::Chunk>| {
            let (start, end) = (chunk.logical().0, chunk.end().0);
            let item = BlockGroupItem {
                used: used_in(used, start, end).into(),
                chunk_objectid: FIRST_CHUNK_TREE.into(),
                flags: chunk.flags().bits().into(),
            };
            let key = Key::new(start, ItemType::BLOCK_GROUP_ITEM, chunk.len_bytes());
            (key, item.as_bytes().to_vec())
        };
        chunks.iter().map(group).collect()
    }

    fn free_space(&self, used: &[(u64, u64)]) -> Items {
        let volume: &Volume = self.output.blocks.volume;
        let used =
            Ranges::new(used.iter().map(|(at, len)| (*at, at.saturating_add(*len))).collect());
        let mut items = Items::new();
        for chunk in volume.chunks().iter() {
            let (start, len_bytes) = (chunk.logical().0, chunk.len_bytes());
            let gaps = used.gaps(start, start + len_bytes);
            let info = FreeSpaceInfo { extent_count: (gaps.len() as u32).into(), flags: 0.into() };
            let key = Key::new(start, ItemType::FREE_SPACE_INFO, len_bytes);
            items.push((key, info.as_bytes().to_vec()));
            let extent = |(from, to): (u64, u64)| {
                (Key::new(from, ItemType::FREE_SPACE_EXTENT, to - from), Vec::new())
            };
            items.extend(gaps.into_iter().map(extent));
        }
        items.sort_by_key(|item| item.0);
        items
    }
}

fn used_in(used: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = used.partition_point(|(at, _)| *at < start);
    used[first..].iter().take_while(|(at, _)| *at < end).map(|(_, len_bytes)| len_bytes).sum()
}

fn keyed(reference: &BackRef) -> Vec<u8> {
    match *reference {
        BackRef::Data { root, objectid, offset, count } => {
            let numbers = [root, objectid, offset];
            let mut data: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            data.extend(count.to_le_bytes());
            data
        }
        BackRef::SharedData { count, .. } => count.to_le_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// The first keys of the blocks of each level, from the leaves up.
fn shape(items: &Items, nodesize: usize) -> Vec<Vec<Key>> {
    let room = nodesize - HEADER_SIZE;
    let (mut firsts, mut taken) = (Vec::new(), room + 1);
    for (key, data) in items {
        let len = ITEM_HEADER_SIZE + data.len();
        if taken + len > room {
            firsts.push(*key);
            taken = 0;
        }
        taken += len;
    }
    if firsts.is_empty() {
        firsts.push(Key::MIN);
    }
    let mut levels = vec![firsts];
    while let Some(last) = levels.last().filter(|level| level.len() > 1) {
        let next = last.chunks(max_key_pointers(nodesize)).map(|part| part[0]).collect();
        levels.push(next);
    }
    levels
}
