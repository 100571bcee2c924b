//! The root tree: the list of trees, the names of subvolumes, and the v1 space cache's files.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{
    DirEntries, FileExtent, FreeSpaceHeader, InodeItem, ROOT_ITEM_V0_SIZE, ROOT_SUBVOL_DEAD,
    ROOT_SUBVOL_RDONLY, RegularExtent, RootItem, RootRef,
};
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, Key, name_hash, objectid, read_exact_item};

use crate::blocks::{DropProgress, Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{FileEvidence, ItemEvidence, TreeEvidence};
use crate::extents::{DataReference, ExtentTable, LeafReferences};
use crate::files::{check_inode_item, name_problem};
use crate::report::Location;

/// A root item.
#[derive(Clone, Debug)]
pub(crate) struct RootEntry {
    /// Id of the tree.
    pub(crate) id: u64,
    /// The transaction that made a snapshot; 0 for other trees.
    pub(crate) snapshot_transid: u64,
    pub(crate) item: RootItem,
}

impl RootEntry {
    /// Whether the subvolume is being deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.item.refs.get() == 0
    }

    /// Whether it is a subvolume in use.
    pub(crate) fn is_live_subvolume(&self) -> bool {
        objectid::is_subvolume(self.id) && !self.is_deleted()
    }

    /// Whether it was made as a copy of another. It keeps the entries of subvolumes that only its
    /// source names. (The source's uuid does not tell: the top subvolume may have none.)
    pub(crate) fn is_snapshot(&self) -> bool {
        self.snapshot_transid != 0 || !self.item.parent_uuid().is_nil()
    }

    fn drop_progress(&self) -> Option<DropProgress> {
        let key = self.item.drop_progress.get();
        let is_begun = self.is_deleted() && key.objectid != 0;
        is_begun.then_some(DropProgress { key, level: self.item.drop_level })
    }
}

/// The name of a subvolume in another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubvolumeName {
    pub(crate) child: u64,
    pub(crate) parent: u64,
    pub(crate) dirid: u64,
    pub(crate) sequence: u64,
    pub(crate) name: Box<[u8]>,
}

/// A file of the v1 space cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheInode {
    pub(crate) size: u64,
    pub(crate) generation: u64,
    /// File offset and extent, in order.
    pub(crate) extents: Vec<(u64, RegularExtent)>,
}

/// A file extent in the root tree.
#[derive(Clone, Copy, Debug)]
struct CacheExtent {
    leaf: u64,
    key: Key,
    extent: RegularExtent,
}

/// The contents of the root tree.
#[derive(Debug, Default)]
pub(crate) struct RootTree {
    /// In order of ids.
    pub(crate) entries: Vec<RootEntry>,
    pub(crate) refs: BTreeSet<SubvolumeName>,
    pub(crate) back_refs: BTreeSet<SubvolumeName>,
    /// Subvolumes that are listed for deletion.
    pub(crate) orphans: BTreeSet<u64>,
    /// v1 space cache: block group and header.
    pub(crate) caches: Vec<(u64, FreeSpaceHeader)>,
    pub(crate) cache_inodes: BTreeMap<u64, CacheInode>,
    cache_extents: Vec<CacheExtent>,
    default_subvolume: Option<u64>,
    /// Whether a root item was unusable.
    lacks_roots: bool,
    /// Whether all of the tree could be read, and all trees are known.
    pub(crate) is_whole: bool,
}

impl RootTree {
    /// Reads the root tree.
    pub(crate) fn read(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot) -> Self {
        let mut tree = Self::default();
        let is_read = for_each_item(context, forest, root, |item| tree.item(context, &item));
        tree.is_whole = is_read && !tree.lacks_roots;
        let default = tree.default_subvolume.filter(|_| tree.is_whole);
        if let Some(id) = default.filter(|id| tree.get(*id).is_none()) {
            context.find(Location::tree(root.tree), TreeEvidence::DefaultSubvolume { id });
        }
        tree
    }

    /// The tree with this id.
    pub(crate) fn get(&self, id: u64) -> Option<&RootEntry> {
        let index = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        Some(&self.entries[index])
    }

    /// Plants the trees: whole ones first, then the rest of partly deleted ones.
    pub(crate) fn plant(&self, context: &Context<'_>, forest: &mut Forest) {
        for entry in self.entries.iter().filter(|entry| entry.drop_progress().is_none()) {
            plant(forest, entry);
        }
        forest.grow(context);
        for entry in &self.entries {
            if let Some(progress) = entry.drop_progress() {
                forest.set_drop_progress(entry.id, progress);
                plant(forest, entry);
            }
        }
        forest.grow(context);
    }

    fn item(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let key = item.key;
        match key.item_type {
            ItemType::ROOT_ITEM => match root_item(context, item) {
                Some(entry) => self.entries.push(entry),
                None => self.lacks_roots = true,
            },
            ItemType::ROOT_REF => self.root_ref(context, item, key.objectid, key.offset),
            ItemType::ROOT_BACKREF => self.root_ref(context, item, key.offset, key.objectid),
            ItemType::ORPHAN_ITEM if key.objectid == objectid::ORPHAN => {
                self.orphans.insert(key.offset);
            }
            ItemType::INODE_ITEM => self.inode(context, item),
            ItemType::EXTENT_DATA => self.file_extent(context, item),
            ItemType::DIR_ITEM if key.objectid == objectid::ROOT_TREE_DIR => {
                self.directory(context, item);
            }
            ItemType::INODE_REF
            | ItemType::DIR_INDEX
            | ItemType::XATTR_ITEM
            | ItemType::TEMPORARY_ITEM
            | ItemType::PERSISTENT_ITEM => {}
            ItemType(0) if key.objectid == objectid::FREE_SPACE => {
                match read_exact_item::<FreeSpaceHeader>(item.data) {
                    Ok(header) => self.caches.push((key.offset, *header)),
                    Err(error) => item.find(context, ItemEvidence::Format { problem: error }),
                }
            }
            other => {
                let unexpected = ItemEvidence::Unexpected { found: other, tree: "root tree" };
                item.find(context, unexpected);
            }
        }
    }

    fn root_ref(&mut self, context: &Context<'_>, item: &Item<'_>, parent: u64, child: u64) {
        let reference = match RootRef::parse(item.data) {
            Ok(reference) => reference,
            Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
        };
        if let Some(problem) = name_problem(reference.name) {
            item.find(context, ItemEvidence::Name { problem });
        }
        let name = SubvolumeName {
            child,
            parent,
            dirid: reference.dirid,
            sequence: reference.sequence,
            name: reference.name.into(),
        };
        if item.key.item_type == ItemType::ROOT_REF {
            self.refs.insert(name);
        } else {
            self.back_refs.insert(name);
        }
    }

    fn inode(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let inode = match read_exact_item::<InodeItem>(item.data) {
            Ok(inode) => inode,
            Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
        };
        check_inode_item(context, item, inode);
        let cache = self.cache_inodes.entry(item.key.objectid).or_default();
        cache.size = inode.size.get();
        cache.generation = inode.generation.get();
    }

    fn file_extent(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let (leaf, key) = (item.leaf, item.key);
        match FileExtent::parse(item.data) {
            Ok(FileExtent::Regular { extent, .. }) if extent.disk_bytenr().is_some() => {
                let inode = self.cache_inodes.entry(key.objectid).or_default();
                inode.extents.push((key.offset, *extent));
                self.cache_extents.push(CacheExtent { leaf, key, extent: *extent });
            }
            Ok(_) => {
                item.find(context, FileEvidence::OfSpaceCache);
            }
            Err(error) => item.find(context, ItemEvidence::Format { problem: error }),
        }
    }

    fn directory(&mut self, context: &Context<'_>, item: &Item<'_>) {
        for entry in DirEntries::new(item.data) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
            };
            let hash = name_hash::dir_name(entry.name);
            if hash != item.key.offset {
                item.find(context, ItemEvidence::NameHash { expected: hash });
            }
            let location = entry.header.location.get();
            if entry.name != b"default" || location.item_type != ItemType::ROOT_ITEM {
                item.find(context, ItemEvidence::NotDefaultSubvolume);
            }
            self.default_subvolume = Some(location.objectid);
        }
    }

    /// Subtracts the references of the space cache's files from those in the extent tree.
    pub(crate) fn add_references(&self, context: &Context<'_>, extents: &ExtentTable) {
        for CacheExtent { leaf, key, extent } in &self.cache_extents {
            let references = LeafReferences::new(context, extents, *leaf, objectid::ROOT_TREE);
            references.add_data(&DataReference {
                item: Item { tree: objectid::ROOT_TREE, leaf: *leaf, key: *key, data: &[] },
                start: extent.disk_bytenr.get(),
                len_bytes: extent.disk_num_bytes.get(),
                offset: key.offset.wrapping_sub(extent.offset.get()),
                is_written: true,
            });
        }
    }
}

fn plant(forest: &mut Forest, entry: &RootEntry) {
    let RootItem { generation, level, .. } = entry.item;
    forest.plant(entry.id, entry.item.bytenr().0, generation.get(), level);
}

fn root_item(context: &Context<'_>, item: &Item<'_>) -> Option<RootEntry> {
    let id = item.key.objectid;
    if item.data.len() != size_of::<RootItem>() && item.data.len() != ROOT_ITEM_V0_SIZE {
        item.find(context, ItemEvidence::RootItemLen { found: item.data.len() });
        return None;
    }
    let root = RootItem::parse(item.data).ok()?;
    let problem = |evidence: TreeEvidence| item.find(context, evidence);
    let most_levels = MAX_LEVELS as u8;
    if root.level >= most_levels || root.drop_level >= most_levels {
        problem(TreeEvidence::Levels { level: root.level, drop_level: root.drop_level });
        return None;
    }
    if !context.is_aligned(root.bytenr().0) {
        problem(TreeEvidence::Address { found: root.bytenr().0 });
        return None;
    }
    let latest = context.generation();
    if root.generation.get() > latest || root.last_snapshot.get() > latest {
        let (generation, last_snapshot) = (root.generation.get(), root.last_snapshot.get());
        problem(TreeEvidence::Generations { generation, last_snapshot });
    }
    if root.flags.get() & !(ROOT_SUBVOL_RDONLY | ROOT_SUBVOL_DEAD) != 0 || root.refs.get() > 1 {
        problem(TreeEvidence::Flags { flags: root.flags.get(), references: root.refs.get() });
    }
    if objectid::is_subvolume(id) && root.refs.get() > 0 && root.drop_progress.get() != Key::MIN {
        let progress = root.drop_progress.get();
        problem(TreeEvidence::InUseAndDeleted { progress });
    }
    let has_files = objectid::is_subvolume(id) || id == objectid::DATA_RELOC_TREE;
    if has_files && root.root_dirid.get() != objectid::FIRST_FREE {
        problem(TreeEvidence::RootDirectory { found: root.root_dirid.get() });
    }
    Some(RootEntry { id, snapshot_transid: item.key.offset, item: root })
}
