//! Trees by their ids, and their root items.
//!
//! # Invariants
//! - A tree that is open has its root item in memory, where commits update it.
//! - A tree that is being dropped is not opened again half way: both are done with `roots` locked.

use std::sync::Arc;

use larder_btree::{Forest, LiveTree, TreeRoot};
use larder_format::item::{RootItem, Timespec};
use larder_format::objectid::{CHUNK_TREE, EXTENT_TREE, ROOT_TREE, is_subvolume};
use larder_format::{ItemType, Key};
use larder_locks::rank::ROOTS;
use larder_locks::{RankedMutex, RankedMutexGuard};

use super::exclusive::Exclusive;
use super::roots::{Roots, beginning_of, parse_root};
use super::system_trees::SystemTrees;
use super::tree_space::TreeSpace;
use crate::error::{Error, Result};
use crate::items::Items;
use crate::tree_items::TreeItems;

/// The properties of a new snapshot.
#[derive(Clone, Copy, Debug)]
pub struct NewSnapshot {
    /// The source.
    pub source: u64,
    /// The id of the new tree. No other tree may have it.
    pub id: u64,
}

/// The trees of a file system that is open for writing.
#[derive(Debug)]
pub struct Trees {
    forest: Forest,
    system: Arc<SystemTrees>,
    roots: RankedMutex<Roots, ROOTS>,
    tree_space: Arc<TreeSpace>,
}

impl Trees {
    pub(super) fn new(
        forest: Forest,
        system: Arc<SystemTrees>,
        roots: Roots,
        tree_space: Arc<TreeSpace>,
    ) -> Self {
        Self { forest, system, roots: RankedMutex::new(roots), tree_space }
    }

    /// The trees that change.
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// The tree of tree roots. Its root items change through
    /// [`Handle::change_root_item`](super::Handle::change_root_item) only.
    pub fn root(&self) -> &Arc<LiveTree> {
        &self.system.root
    }

    /// The extent tree.
    pub(crate) fn extent(&self) -> &Arc<LiveTree> {
        &self.system.extent
    }

    pub(super) fn system(&self) -> &SystemTrees {
        &self.system
    }

    /// The root items in memory, for a commit.
    pub(super) fn lock_roots(&self) -> RankedMutexGuard<'_, Roots, ROOTS> {
        self.roots.lock()
    }

    fn root_items(&self) -> TreeItems {
        TreeItems::new(self.system.root.clone())
    }

    /// The tree of this id, opened by its root item if it is not open yet; `None` if there is none.
    pub fn open(&self, id: u64) -> Result<Option<Arc<LiveTree>>> {
        if let Some(tree) = self.forest.tree(id) {
            return Ok(Some(tree));
        }
        let last = Key::new(id, ItemType::ROOT_ITEM, u64::MAX);
        let found = self.root_items().at_or_before(last)?;
        let Some((key, data)) =
            found.filter(|(key, _)| (key.objectid, key.item_type) == (id, ItemType::ROOT_ITEM))
        else {
            return Ok(None);
        };
        let item = parse_root(key, &data)?;
        // Under the lock, so that a tree that is being dropped is not opened again half way.
        let mut roots = self.roots.lock();
        roots.open(key, &item);
        let (_, item) = roots.get(id).expect("it was just opened");
        let root = TreeRoot::of_item(id, item);
        self.tree_space.space.note_level(root.level);
        Ok(Some(self.forest.open_tree(root, item.last_snapshot.get())))
    }

    /// The root item of a tree that is open, and its key. The root's address in it may be out of
    /// date.
    pub fn root_item(&self, tree: u64) -> Option<(Key, RootItem)> {
        self.roots.lock().get(tree).map(|(key, item)| (key, *item))
    }

    /// See [`Handle::change_root_item`](super::Handle::change_root_item).
    pub(super) fn change_root_item<T>(
        &self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.roots.lock().change(tree, change)
    }

    /// See [`Handle::create_tree`](super::Handle::create_tree).
    pub(super) fn create(&self, id: u64, item: &RootItem) -> Result<Arc<LiveTree>> {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        if self.open(id)?.is_some() {
            return Err(Error::ItemExists { tree: ROOT_TREE, key });
        }
        let tree = self.forest.create_tree(id)?;
        self.roots.lock().create(key, &beginning_of(&tree, item));
        if let Some(quotas) = self.tree_space.quotas().filter(|_| is_subvolume(id)) {
            quotas.create(id);
        }
        Ok(tree)
    }

    /// See [`Exclusive::snapshot`](super::Exclusive::snapshot).
    pub(super) fn snapshot(
        &self,
        exclusive: &Exclusive<'_>,
        snapshot: NewSnapshot,
        configure: impl FnOnce(&mut RootItem),
    ) -> Result<Arc<LiveTree>> {
        let NewSnapshot { source, id } = snapshot;
        let missing = |key| Error::MissingItem { tree: ROOT_TREE, key };
        let source_key = Key::new(source, ItemType::ROOT_ITEM, 0);
        let source_tree = self.open(source)?.ok_or_else(|| missing(source_key))?;
        let generation = self.forest.generation();
        let tree = self.forest.snapshot_tree(&source_tree, id)?;
        let mut roots = self.roots.lock();
        self.note_growth(exclusive, &mut roots);
        let item = roots.change(source, |item| {
            item.last_snapshot = generation.into();
            *item
        });
        let mut item = item.ok_or_else(|| missing(source_key))?;
        item.refs = 1.into();
        configure(&mut item);
        roots.create(Key::new(id, ItemType::ROOT_ITEM, generation), &beginning_of(&tree, &item));
        if let Some(quotas) = self.tree_space.quotas() {
            quotas.snapshot(source, id);
        }
        Ok(tree)
    }

    /// Makes a subvolume begin where its root block has moved to. Nothing in it has changed, so
    /// that its times stay.
    pub(super) fn move_root(&self, _: &Exclusive<'_>, root: TreeRoot) -> Result<()> {
        let key = Key::new(root.tree, ItemType::ROOT_ITEM, 0);
        let missing = || Error::MissingItem { tree: ROOT_TREE, key };
        self.open(root.tree)?.ok_or_else(missing)?.move_root(root);
        let moved = self.change_root_item(root.tree, |item| {
            item.bytenr = root.logical.0.into();
            item.level = root.level;
            item.generation = root.generation.into();
            item.generation_v2 = root.generation.into();
        });
        moved.ok_or_else(missing)
    }

    /// Removes a tree whose blocks are all dropped, and its root item, which has `key`.
    pub(super) fn remove(&self, tree: u64, key: Key) -> Result<()> {
        self.roots.lock().forget(tree);
        self.forest.forget_tree(tree);
        self.root_items().remove(key)?;
        if let Some(quotas) = self.tree_space.quotas() {
            quotas.dropped(tree);
        }
        Ok(())
    }

    /// Copies the root of the root tree, which has the superblock's generation even if nothing but
    /// the superblock changes. Part of a commit.
    pub(super) fn renew_root_tree(&self) -> Result<()> {
        if self.system.root.root().generation < self.forest.generation() {
            let always_there = Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0);
            self.system.root.modify(always_there, |_| ())?;
        }
        Ok(())
    }

    /// Updates root items, and returns whether any had changed. Part of a commit.
    pub(super) fn write_roots(&self, exclusive: &Exclusive<'_>, now: Timespec) -> Result<bool> {
        let moved = std::mem::take(&mut *self.tree_space.moved_roots.lock());
        let mut roots = self.roots.lock();
        let has_item = |root: &&TreeRoot| {
            // The superblock leads to these two. A tree that was dropped has no item.
            !matches!(root.tree, ROOT_TREE | CHUNK_TREE) && roots.get(root.tree).is_some()
        };
        let moved: Vec<TreeRoot> = moved.values().filter(has_item).copied().collect();
        moved.into_iter().try_for_each(|root| roots.moved(root, now))?;
        self.note_growth(exclusive, &mut roots);
        if !roots.is_dirty() {
            return Ok(false);
        }
        roots.write(&mut self.root_items())?;
        Ok(true)
    }

    /// Updates the sizes of trees in their root items.
    fn note_growth(&self, _: &Exclusive<'_>, roots: &mut Roots) {
        let nodesize = i64::from(self.tree_space.nodesize);
        for tree in self.forest.trees() {
            match tree.take_growth() {
                0 => {}
                blocks => roots.grown(tree.id(), blocks * nodesize),
            }
        }
    }
}
