//! Loading a manager's state from the trees of the last commit.

use std::ops::Range;
use std::sync::Arc;

use larder_btree::{BlockCache, Forest, LiveTree, Readahead, Tree, TreeRoot};
use larder_format::feature::IncompatFlags;
use larder_format::item::{BlockGroupItem, RootItem};
use larder_format::objectid::{DATA_RELOC_TREE, FS_TREE, QUOTA_TREE, UUID_TREE};
use larder_format::{ItemType, Key, Superblock, read_exact_item};
use larder_volume::{Chunk, Volume};

use super::roots::parse_root;
use super::system_trees::SystemTrees;
use crate::error::{Error, Result};
use crate::free_space_tree::GroupFreeSpace;
use crate::space::LoadedGroup;
use crate::tree_items::TreeItems;

/// Why a file system cannot be written here although its features allow it.
pub(super) fn check_writable(volume: &Volume) -> Result<()> {
    let superblock = volume.superblock();
    let refuse = |reason| Err(Error::ReadOnly(reason));
    if !volume.is_writable() {
        return refuse("its devices are open for reading");
    }
    if superblock.has_incompat(IncompatFlags::RAID_STRIPE_TREE) {
        return refuse("it has a raid stripe tree");
    }
    if superblock.has_incompat(IncompatFlags::SIMPLE_QUOTA) {
        return refuse("it has simple quotas");
    }
    if volume.chunks().iter().any(|chunk| chunk.has_parity()) {
        return refuse("it has RAID5 or RAID6 chunks");
    }
    Ok(())
}

/// Trees that some file systems have.
const OPTIONAL_TREES: [u64; 2] = [QUOTA_TREE, UUID_TREE];
/// Trees that bookkeeping does not change, and without which the kernel mounts nothing.
const OTHER_TREES: [u64; 2] = [FS_TREE, DATA_RELOC_TREE];

/// Reads the root items of the system trees, and the root block of each tree that the kernel reads
/// when it mounts: everything that a commit needs is known to exist before anything changes.
pub(super) fn read_roots(
    cache: &Arc<BlockCache>,
    superblock: &Superblock,
) -> Result<Vec<(Key, RootItem)>> {
    let root_tree = Tree::new(cache.clone(), TreeRoot::of_root_tree(superblock));
    let read = |id: u64| -> Result<Option<(Key, RootItem)>> {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        let Some(item) = root_tree.get(key)? else { return Ok(None) };
        let item = parse_root(key, &item)?;
        Tree::new(cache.clone(), TreeRoot::of_item(id, &item)).root_block()?;
        Ok(Some((key, item)))
    };
    let mut roots = Vec::new();
    for id in SystemTrees::required(superblock) {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        let missing = Error::MissingItem { tree: root_tree.root().tree, key };
        roots.push(read(id)?.ok_or(missing)?);
    }
    for id in OPTIONAL_TREES {
        roots.extend(read(id)?);
    }
    for id in OTHER_TREES {
        read(id)?;
    }
    Ok(roots)
}

/// The block groups of the chunks of `volume`, with their free space.
pub(super) fn load_groups(
    volume: &Volume,
    forest: &Forest,
    trees: &SystemTrees,
) -> Result<Vec<LoadedGroup>> {
    let free_space = trees.free_space.clone().map(TreeItems::new);
    let chunks = volume.chunks();
    chunks
        .iter()
        .map(|chunk| {
            let used = read_used(&trees.block_group, chunk)?;
            let free = match &free_space {
                Some(tree) => free_space_of(chunk, volume.sectorsize()).load(tree)?,
                None => scan_extents(forest, &trees.extent, chunk, volume.nodesize())?,
            };
            let (start, len_bytes) = (chunk.logical(), chunk.len_bytes());
            Ok(LoadedGroup { start, len_bytes, flags: chunk.flags(), used, free })
        })
        .collect()
}

/// The part of the free space tree for a chunk's block group.
pub(super) fn free_space_of(chunk: &Chunk, sectorsize: u32) -> GroupFreeSpace {
    GroupFreeSpace { group: chunk.logical().0..chunk.end().0, sectorsize }
}

/// The key of a chunk's block group.
pub(super) fn block_group_key(chunk: &Chunk) -> Key {
    Key::new(chunk.logical().0, ItemType::BLOCK_GROUP_ITEM, chunk.len_bytes())
}

fn read_used(tree: &LiveTree, chunk: &Chunk) -> Result<u64> {
    let key = block_group_key(chunk);
    let data = tree.get(key)?.ok_or(Error::MissingItem { tree: tree.id(), key })?;
    let item: &BlockGroupItem =
        read_exact_item(&data).map_err(|problem| Error::item(tree.id(), key, problem))?;
    if item.flags() != chunk.flags() {
        let problem = format!("flags {:#x}, its chunk has {:#x}", item.flags, chunk.flags().bits());
        return Err(Error::block_group(chunk.logical(), problem));
    }
    Ok(item.used.get())
}

/// The space of a chunk that no extent covers.
fn scan_extents(
    forest: &Forest,
    tree: &LiveTree,
    chunk: &Chunk,
    nodesize: u32,
) -> Result<Vec<Range<u64>>> {
    let (start, end) = (chunk.logical().0, chunk.end().0);
    let committed = Tree::new(forest.cache().clone(), tree.root());
    let keys = Key::new(start, ItemType(0), 0)..Key::new(end, ItemType(0), 0);
    let mut extents = committed.range(keys, Readahead::Forward);
    let (mut free, mut at) = (Vec::new(), start);
    while let Some((key, _)) = extents.next_item()? {
        let len_bytes = match key.item_type {
            ItemType::EXTENT_ITEM => key.offset,
            ItemType::METADATA_ITEM => u64::from(nodesize),
            _ => continue,
        };
        let extent_end =
            key.objectid.checked_add(len_bytes).filter(|extent_end| *extent_end <= end);
        let Some(extent_end) = extent_end.filter(|_| key.objectid >= at) else {
            return Err(Error::block_group(
                chunk.logical(),
                format!("extent {key} overlaps or leaves it"),
            ));
        };
        if at < key.objectid {
            free.push(at..key.objectid);
        }
        at = extent_end;
    }
    if at < end {
        free.push(at..end);
    }
    Ok(free)
}
