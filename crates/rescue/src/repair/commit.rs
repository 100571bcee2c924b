//! One commit that carries out a draft.
//!
//! # Invariants
//! - No block of the state before is overwritten: the new state lies in free space, and begins with
//!   the superblock, which is written last.
//! - What space is used for is written down anew from what the trees of the new state refer to.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::item::{BackRef, Chunk, Extent, FreeSpaceHeader, QgroupStatusItem, RootItem};
use larder_format::objectid::{
    BLOCK_GROUP_TREE, CHUNK_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE, FIRST_FREE, FREE_SPACE,
    FREE_SPACE_TREE, FS_TREE, QUOTA_TREE, ROOT_TREE, TREE_LOG, TREE_RELOC, is_file_tree,
    is_subvolume,
};
use larder_format::superblock::{BACKUP_ROOTS, BackupRoot, SUPER_FLAG_ERROR};
use larder_format::{BlockGroupFlags, DiskKey, ItemType, Key, Superblock};
use larder_volume::{BlockExpectation, Volume};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::block::{Blocks, Content, Pointer};
use super::books::Books;
use super::error::RepairError;
use super::references::{References, Tree};
use super::space::Free;
use super::update::{Edits, Output, Root, Update};

/// What a repair changes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Changes of items, by tree.
    pub(super) edits: BTreeMap<u64, Edits>,
    /// Trees that get other items altogether.
    pub(super) whole: BTreeMap<u64, Vec<(Key, Vec<u8>)>>,
    /// Blocks that are written anew.
    pub(super) suspects: HashSet<u64>,
    /// Trees whose blocks are all looked at.
    pub(super) walked: BTreeSet<u64>,
    /// Whether the log goes.
    pub(super) drops_log: bool,
    /// Whether the uuid tree is complete afterwards.
    pub(super) has_new_uuid_tree: bool,
    /// Files that had no checksums and get some: subvolume and inode.
    pub(super) with_checksums: BTreeSet<(u64, u64)>,
    /// The newest commit that a device knows of: the new one is newer.
    pub(super) newest_generation: u64,
    /// Sectors whose checksums were computed.
    pub(super) fresh_checksums: BTreeSet<u64>,
    /// Items that said something impossible: subvolume and key.
    pub(super) set_right: BTreeSet<(u64, Key)>,
    /// What was changed that no finding says, and what was lost.
    pub(super) notes: Vec<String>,
}

/// The trees of a file system, as far as they can be read.
pub(super) struct State {
    pub(super) root_items: BTreeMap<Key, Vec<u8>>,
    pub(super) root_tree: Root,
    pub(super) chunk_tree: Root,
    logs: Vec<Tree>,
    /// Whether a block of the root tree is lost.
    pub(super) is_torn: bool,
}

impl State {
    pub(super) fn read(blocks: &Blocks<'_>) -> Self {
        let superblock = blocks.volume.superblock();
        let root = |logical, generation, level| Root { logical, generation, level };
        let generation = superblock.generation.get();
        let root_tree = root(superblock.root.get(), generation, superblock.root_level);
        let chunk_tree = root(
            superblock.chunk_root.get(),
            superblock.chunk_root_generation.get(),
            superblock.chunk_root_level,
        );
        let mut state = Self {
            root_items: BTreeMap::new(),
            root_tree,
            chunk_tree,
            logs: Vec::new(),
            is_torn: false,
        };
        let mut items = BTreeMap::new();
        state.is_torn = !each_item(blocks, ROOT_TREE, root_tree, &mut |key, data| {
            items.entry(key).or_insert_with(|| data.to_vec());
        });
        state.root_items = items;
        if superblock.log_root.get() != 0 {
            let logs = root(superblock.log_root.get(), generation + 1, superblock.log_root_level);
            state.logs.push(Tree { id: TREE_LOG, root: logs, dropped: None });
            let mut found = Vec::new();
            each_item(blocks, TREE_LOG, logs, &mut |key, data| {
                if let Some(root) = root_of(data).filter(|_| key.item_type == ItemType::ROOT_ITEM) {
                    found.push(Tree { id: TREE_LOG, root, dropped: None });
                }
            });
            state.logs.extend(found);
        }
        state
    }

    /// The trees that the root tree lists.
    pub(super) fn trees(&self) -> Vec<Tree> {
        let items = self.root_items.iter();
        let roots = items.filter(|(key, _)| key.item_type == ItemType::ROOT_ITEM);
        roots
            .filter_map(|(key, data)| {
                let item = RootItem::parse(data).ok()?;
                let progress = item.drop_progress.get();
                let dropped = (item.refs.get() == 0 && progress != Key::MIN)
                    .then_some((progress, item.drop_level));
                Some(Tree { id: key.objectid, root: root_of(data)?, dropped })
            })
            .collect()
    }

    /// The root of a tree.
    pub(super) fn root(&self, tree: u64) -> Option<Root> {
        match tree {
            ROOT_TREE => Some(self.root_tree),
            CHUNK_TREE => Some(self.chunk_tree),
            _ => self.trees().into_iter().find(|it| it.id == tree).map(|it| it.root),
        }
    }

    fn set_root(&mut self, tree: u64, root: Root) {
        match tree {
            CHUNK_TREE => self.chunk_tree = root,
            _ => set_root(&mut self.root_items, tree, root),
        }
    }

    pub(super) fn every_tree(&self) -> Vec<Tree> {
        let own = [(ROOT_TREE, self.root_tree), (CHUNK_TREE, self.chunk_tree)];
        let own = own.into_iter().map(|(id, root)| Tree { id, root, dropped: None });
        own.chain(self.trees()).chain(self.logs.iter().copied()).collect()
    }
}

/// The root that a root item names.
fn root_of(data: &[u8]) -> Option<Root> {
    let item = RootItem::parse(data).ok()?;
    let (logical, generation) = (item.bytenr.get(), item.generation.get());
    (item.level < 8).then_some(Root { logical, generation, level: item.level })
}

/// Calls `visit` with each item of a tree that is left, in order. Returns whether all is there.
pub(super) fn each_item(
    blocks: &Blocks<'_>,
    tree: u64,
    root: Root,
    visit: &mut dyn FnMut(Key, &[u8]),
) -> bool {
    let at = Pointer { key: Key::MIN, logical: root.logical, generation: root.generation };
    each_below(blocks, tree, root.level, &at, visit)
}

fn each_below(
    blocks: &Blocks<'_>,
    tree: u64,
    level: u8,
    at: &Pointer,
    visit: &mut dyn FnMut(Key, &[u8]),
) -> bool {
    match blocks.read(tree, level, at).map(|block| block.content) {
        None => false,
        Some(Content::Leaf(items)) => {
            for (key, data) in &items {
                visit(*key, data);
            }
            true
        }
        Some(Content::Node(children)) => children
            .iter()
            .map(|child| level > 0 && each_below(blocks, tree, level - 1, child, visit))
            .fold(true, |all, one| all & one),
    }
}

/// Whether a block of any tree is lost: nothing can be saved of any copy.
pub(super) fn lacks_blocks(volume: &Volume) -> bool {
    let blocks = Blocks::new(volume, HashSet::new());
    let state = State::read(&blocks);
    state.is_torn || !References::of(&blocks, &state.every_tree()).lost.is_empty()
}

/// Writes the state that the draft leads to.
pub(super) fn commit(volume: &Volume, draft: &mut Draft) -> Result<(), RepairError> {
    let blocks = Blocks::new(volume, std::mem::take(&mut draft.suspects));
    let mut state = State::read(&blocks);
    let superblock = volume.superblock();
    let old = References::of(&blocks, &state.every_tree());
    let owners = owners_of_extents(&blocks, &state);
    forget_relocation(&mut state.root_items, draft);
    let mut free = Free::new(volume, old.ranges(u64::from(volume.nodesize())));
    drop(old);
    let keeps_log = superblock.log_root.get() != 0 && !draft.drops_log;
    // The log is one of the commit after the one that it was written in.
    let newest = superblock.generation.get().max(draft.newest_generation);
    let generation = newest + u64::from(!keeps_log);
    let output =
        Output { blocks: &blocks, generation, chunk_tree_uuid: chunk_tree_uuid(&blocks, &state) };
    if let Some(edits) = draft.edits.remove(&ROOT_TREE) {
        for (key, data) in edits {
            match data {
                Some(data) => drop(state.root_items.insert(key, data)),
                None => drop(state.root_items.remove(&key)),
            }
        }
    }
    forget_caches(&mut state.root_items);
    keep_quotas(&blocks, &state, generation, draft);
    output.sieve_tree(ROOT_TREE, &mut state.root_items);
    rewrite_trees(&output, &mut state, draft, &mut free)?;

    // Everything except the books and the root tree, which are written last.
    let of_books = [EXTENT_TREE, BLOCK_GROUP_TREE, FREE_SPACE_TREE];
    let trees = state.every_tree().into_iter();
    let others = trees.filter(|tree| tree.id != ROOT_TREE && !of_books.contains(&tree.id));
    let others: Vec<Tree> = others.filter(|tree| keeps_log || tree.id != TREE_LOG).collect();
    let references = References::of(&blocks, &others);
    if let Some((tree, logical)) = references.lost.first() {
        return Err(RepairError::Lost { tree: *tree, logical: *logical });
    }
    let features = superblock.compat_ro_flags();
    let books = Books {
        output: &output,
        references: &references,
        owners: &owners,
        has_skinny_metadata: superblock.has_incompat(IncompatFlags::SKINNY_METADATA),
        has_group_tree: features.contains(CompatRoFlags::BLOCK_GROUP_TREE),
        has_free_space_tree: features.contains(CompatRoFlags::FREE_SPACE_TREE),
    };
    for (tree, is_there) in
        of_books.into_iter().zip([true, books.has_group_tree, books.has_free_space_tree])
    {
        if is_there {
            set_root(&mut state.root_items, tree, Root { logical: 0, generation, level: 0 });
        }
    }
    let written = books.write(&mut state.root_items, &free, set_root)?;
    draft.notes.extend(blocks.notes.take());

    let mut next = Superblock::clone(&superblock);
    next.generation = generation.into();
    let root = written.roots[&ROOT_TREE];
    (next.root, next.root_level) = (root.logical.into(), root.level);
    next.chunk_root = state.chunk_tree.logical.into();
    next.chunk_root_level = state.chunk_tree.level;
    next.chunk_root_generation = state.chunk_tree.generation.into();
    next.bytes_used = written.used_bytes.into();
    if !keeps_log {
        (next.log_root, next.log_root_level) = (0.into(), 0);
    }
    if next.cache_generation.get() != 0 && !books.has_free_space_tree {
        next.cache_generation = generation.into();
    }
    let had_uuid_tree = superblock.uuid_tree_generation == superblock.generation;
    if had_uuid_tree || draft.has_new_uuid_tree {
        next.uuid_tree_generation = generation.into();
    }
    let mut system_chunks = Vec::new();
    each_item(&blocks, CHUNK_TREE, state.chunk_tree, &mut |key, data| {
        let flags = Chunk::parse(data).map(|chunk| chunk.flags());
        let is_system = flags.is_ok_and(|flags| flags.contains(BlockGroupFlags::SYSTEM));
        if key.item_type == ItemType::CHUNK_ITEM && is_system {
            system_chunks.push((key, data.to_vec()));
        }
    });
    mend_fields(volume, &system_chunks, &mut next);
    note_backup(&mut next, &written.roots, &state);
    volume.write_superblocks(&next)?;
    volume.flush()?;
    Ok(())
}

/// Writes the changed trees, except those that are written last.
fn rewrite_trees(
    output: &Output<'_>,
    state: &mut State,
    draft: &mut Draft,
    free: &mut Free,
) -> Result<(), RepairError> {
    let walks_files = draft.walked.iter().any(|tree| is_file_tree(*tree));
    let none = Edits::new();
    for (tree, items) in std::mem::take(&mut draft.whole) {
        let root = Update::whole(output, tree, items, free)?;
        state.set_root(tree, root);
    }
    let last = [ROOT_TREE, EXTENT_TREE, BLOCK_GROUP_TREE, FREE_SPACE_TREE, TREE_LOG];
    for tree in state.every_tree() {
        let is_walked = draft.walked.contains(&tree.id) || (walks_files && is_file_tree(tree.id));
        let edits = draft.edits.get(&tree.id);
        if last.contains(&tree.id) || !(is_walked || edits.is_some()) || tree.dropped.is_some() {
            continue;
        }
        let (root, lost) = Update::run(output, tree.id, tree.root, edits.unwrap_or(&none), free)?;
        for (from, to) in lost {
            let to = to.map_or("the end".to_owned(), |key| key.to_string());
            let tree = tree.id as i64;
            draft.notes.push(format!("tree {tree}: items from {from} to {to} are lost"));
        }
        if root != tree.root {
            state.set_root(tree.id, root);
        }
    }
    Ok(())
}

/// Puts the root of a tree into its root item; makes one if there is none.
fn set_root(items: &mut BTreeMap<Key, Vec<u8>>, tree: u64, root: Root) {
    let first = Key::new(tree, ItemType::ROOT_ITEM, 0);
    let last = Key::new(tree, ItemType::ROOT_ITEM, u64::MAX);
    let key = items.range(first..=last).next().map_or(first, |(key, _)| *key);
    let data = items.entry(key).or_insert_with(|| {
        let mut item = RootItem::new_zeroed();
        item.refs = 1.into();
        if is_file_tree(tree) {
            item.root_dirid = FIRST_FREE.into();
        }
        item.as_bytes().to_vec()
    });
    let len = data.len();
    let mut item = RootItem::parse(data).unwrap_or_else(|_| RootItem::new_zeroed());
    let is_new_form = item.generation_v2 == item.generation && len >= size_of::<RootItem>();
    item.bytenr = root.logical.into();
    item.level = root.level;
    item.generation = root.generation.into();
    if is_new_form {
        item.generation_v2 = item.generation;
    }
    data.copy_from_slice(&item.as_bytes()[..len]);
}

/// Makes the status of quotas say that the counts are those of this commit: the checker finds those
/// that are not. While subvolumes are being deleted nobody knows, and the counts are told to be
/// wrong.
fn keep_quotas(blocks: &Blocks<'_>, state: &State, generation: u64, draft: &mut Draft) {
    use larder_format::item::qgroup_status_flags::{INCONSISTENT, ON, RESCAN};
    let Some(root) = state.root(QUOTA_TREE) else { return };
    let is_deleted = |(key, data): (&Key, &Vec<u8>)| {
        key.item_type == ItemType::ROOT_ITEM
            && is_subvolume(key.objectid)
            && RootItem::parse(data).is_ok_and(|item| item.refs.get() == 0)
    };
    let is_known = !state.root_items.iter().any(is_deleted);
    let edits = draft.edits.entry(QUOTA_TREE).or_default();
    each_item(blocks, QUOTA_TREE, root, &mut |key, data| {
        let mut data = data.to_vec();
        let Ok((status, _)) = QgroupStatusItem::mut_from_prefix(&mut data) else { return };
        let is_counted = status.flags.get() & (ON | INCONSISTENT | RESCAN) == ON;
        if key.item_type == ItemType::QGROUP_STATUS && is_counted && !edits.contains_key(&key) {
            status.generation = generation.into();
            if !is_known {
                status.flags = (status.flags.get() | INCONSISTENT).into();
            }
            edits.insert(key, Some(data));
        }
    });
}

/// Drops the trees in which an interrupted balance keeps blocks that it moves: the trees of files
/// have all blocks themselves, in the old places or in the new ones. The balance begins with that
/// block group again.
fn forget_relocation(items: &mut BTreeMap<Key, Vec<u8>>, draft: &mut Draft) {
    let is_of_balance =
        |key: &Key| key.objectid == TREE_RELOC && key.item_type == ItemType::ROOT_ITEM;
    let count = items.len();
    items.retain(|key, _| !is_of_balance(key));
    if items.len() < count {
        draft.notes.push("a balance that was interrupted begins with its block group again".into());
    }
}

/// The subvolumes that simple quotas charge data extents to, by their start.
fn owners_of_extents(blocks: &Blocks<'_>, state: &State) -> BTreeMap<u64, u64> {
    let mut owners = BTreeMap::new();
    let has_owners = blocks.volume.superblock().has_incompat(IncompatFlags::SIMPLE_QUOTA);
    let Some(root) = state.root(EXTENT_TREE).filter(|_| has_owners) else { return owners };
    each_item(blocks, EXTENT_TREE, root, &mut |key, data| {
        let extent = Extent::parse(key, data).ok();
        let extent = extent.filter(|_| key.item_type == ItemType::EXTENT_ITEM);
        let references = extent.iter().flat_map(Extent::back_refs).flatten();
        for reference in references {
            if let BackRef::Owner { root } = reference.back_ref {
                owners.insert(key.objectid, root);
            }
        }
    });
    owners
}

/// Removes the v1 space caches: they are of the state before.
fn forget_caches(items: &mut BTreeMap<Key, Vec<u8>>) {
    let is_cache = |key: &Key| key.objectid == FREE_SPACE && key.item_type == ItemType(0);
    let inodes: BTreeSet<u64> = items
        .iter()
        .filter(|(key, _)| is_cache(key))
        .filter_map(|(_, data)| FreeSpaceHeader::ref_from_prefix(data).ok())
        .map(|(header, _)| header.location.get().objectid)
        .collect();
    let of_files = [ItemType::INODE_ITEM, ItemType::EXTENT_DATA, ItemType::ORPHAN_ITEM];
    items.retain(|key, _| {
        let is_file = inodes.contains(&key.objectid) || key.item_type == ItemType::EXTENT_DATA;
        !(is_cache(key) || (is_file && of_files.contains(&key.item_type)))
    });
}

/// The uuid in the headers of blocks, from the first root that can be read.
pub(super) fn chunk_tree_uuid(blocks: &Blocks<'_>, state: &State) -> [u8; 16] {
    let mut bytes = vec![0; blocks.nodesize()];
    let mut told = |tree: Tree| {
        let at = larder_format::Logical(tree.root.logical);
        let expected = BlockExpectation { owner: Some(tree.id), ..BlockExpectation::default() };
        blocks.volume.read_tree_block(at, &expected, &mut bytes).ok()?;
        let (header, _) = larder_format::Header::ref_from_prefix(&bytes).ok()?;
        Some(header.chunk_tree_uuid)
    };
    let chunk_tree = Tree { id: CHUNK_TREE, root: state.chunk_tree, dropped: None };
    [chunk_tree].into_iter().chain(state.trees()).find_map(&mut told).unwrap_or_default()
}

/// Sets the fields right that follow from others.
fn mend_fields(volume: &Volume, system_chunks: &[(Key, Vec<u8>)], next: &mut Superblock) {
    let mut array = Vec::new();
    for (key, data) in system_chunks {
        array.extend(DiskKey::from(*key).as_bytes());
        array.extend(data);
    }
    if !array.is_empty() && array.len() <= next.sys_chunk_array.len() {
        next.sys_chunk_array.fill(0);
        next.sys_chunk_array[..array.len()].copy_from_slice(&array);
        next.sys_chunk_array_size = (array.len() as u32).into();
    }
    let devices = volume.devices();
    let own = devices.iter().map(|device| device.dev_item().total_bytes.get());
    next.total_bytes = own.sum::<u64>().into();
    next.num_devices = (devices.len() as u64).into();
    (next.leafsize, next.stripesize) = (next.nodesize, next.sectorsize);
    next.root_dir_objectid = larder_format::objectid::ROOT_TREE_DIR.into();
    next.flags = (next.flags.get() & !SUPER_FLAG_ERROR).into();
    next.incompat_flags = (next.incompat_flags.get() | IncompatFlags::MIXED_BACKREF.bits()).into();
    if !next.label.contains(&0) {
        next.label[next.label.len() - 1] = 0;
    }
    if next.uuid_tree_generation > next.generation {
        next.uuid_tree_generation = 0.into();
    }
}

/// The new state is the only one that is known to be sound.
fn note_backup(next: &mut Superblock, roots: &BTreeMap<u64, Root>, state: &State) {
    let root = |tree: u64| {
        let none = Root { logical: 0, generation: 0, level: 0 };
        roots.get(&tree).copied().or_else(|| state.root(tree)).unwrap_or(none)
    };
    let mut backup = BackupRoot::new_zeroed();
    let tree = root(ROOT_TREE);
    (backup.tree_root, backup.tree_root_level) = (tree.logical.into(), tree.level);
    backup.tree_root_gen = next.generation;
    let tree = root(EXTENT_TREE);
    (backup.extent_root, backup.extent_root_level) = (tree.logical.into(), tree.level);
    backup.extent_root_gen = tree.generation.into();
    let tree = state.chunk_tree;
    (backup.chunk_root, backup.chunk_root_level) = (tree.logical.into(), tree.level);
    backup.chunk_root_gen = tree.generation.into();
    let tree = root(FS_TREE);
    (backup.fs_root, backup.fs_root_level) = (tree.logical.into(), tree.level);
    backup.fs_root_gen = tree.generation.into();
    let tree = root(DEV_TREE);
    (backup.dev_root, backup.dev_root_level) = (tree.logical.into(), tree.level);
    backup.dev_root_gen = tree.generation.into();
    let tree = root(CSUM_TREE);
    (backup.csum_root, backup.csum_root_level) = (tree.logical.into(), tree.level);
    backup.csum_root_gen = tree.generation.into();
    backup.total_bytes = next.total_bytes;
    backup.bytes_used = next.bytes_used;
    backup.num_devices = next.num_devices;
    next.super_roots = [BackupRoot::new_zeroed(); BACKUP_ROOTS];
    next.super_roots[0] = backup;
}
