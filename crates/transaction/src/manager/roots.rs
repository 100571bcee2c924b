//! The root items of the trees that are open, in memory until a commit writes them.

use std::collections::BTreeMap;

use larder_btree::{LiveTree, TreeRoot};
use larder_format::item::{RootItem, Timespec};
use larder_format::objectid::{CHUNK_TREE, ROOT_TREE, is_subvolume};
use larder_format::{Key, read_exact_item};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::items::Items;

/// `item` with the root of `tree`.
pub(super) fn beginning_of(tree: &LiveTree, item: &RootItem) -> RootItem {
    let root = tree.root();
    RootItem {
        bytenr: root.logical.0.into(),
        level: root.level,
        generation: root.generation.into(),
        generation_v2: root.generation.into(),
        ..*item
    }
}

/// Reads a root item.
pub(crate) fn parse_root(key: Key, data: &[u8]) -> Result<RootItem> {
    let item = RootItem::parse(data).map_err(|problem| Error::item(ROOT_TREE, key, problem))?;
    if usize::from(item.level) >= larder_format::node::MAX_LEVELS {
        let problem = larder_format::FormatError::invalid("RootItem", "its level is over 7");
        return Err(Error::item(ROOT_TREE, key, problem));
    }
    Ok(item)
}

/// The root items that may change, by tree.
#[derive(Debug, Default)]
pub(super) struct Roots {
    open: BTreeMap<u64, OpenRoot>,
}

#[derive(Debug)]
struct OpenRoot {
    key: Key,
    item: RootItem,
    /// The root tree has an older item, or none.
    is_dirty: bool,
}

impl Roots {
    /// Adds an item as in the root tree.
    pub(super) fn open(&mut self, key: Key, item: &RootItem) {
        let open = OpenRoot { key, item: *item, is_dirty: false };
        self.open.entry(key.objectid).or_insert(open);
    }

    /// Adds an item that the root tree does not have yet.
    pub(super) fn create(&mut self, key: Key, item: &RootItem) {
        self.open.insert(key.objectid, OpenRoot { key, item: *item, is_dirty: true });
    }

    /// Removes a tree, and returns its key.
    pub(super) fn forget(&mut self, tree: u64) -> Option<Key> {
        Some(self.open.remove(&tree)?.key)
    }

    /// The key and item of a tree.
    pub(super) fn get(&self, tree: u64) -> Option<(Key, &RootItem)> {
        self.open.get(&tree).map(|open| (open.key, &open.item))
    }

    /// Changes the item of a tree. Returns whether it is open.
    pub(super) fn change<T>(
        &mut self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        let open = self.open.get_mut(&tree)?;
        open.is_dirty = true;
        Some(change(&mut open.item))
    }

    /// Updates the addresses of roots in items. Subvolumes also note the generation.
    ///
    /// A snapshot that changed in the transaction that made it is refused: a thread that deletes it
    /// takes all blocks of that transaction for blocks of other trees.
    pub(super) fn moved(&mut self, root: TreeRoot, now: Timespec) -> Result<()> {
        let is_newborn = |(key, item): (Key, &RootItem)| {
            key.offset == root.generation && item.bytenr() != root.logical
        };
        if self.get(root.tree).is_some_and(is_newborn) {
            let problem = "a snapshot was changed before it was committed";
            return Err(Error::extent(root.logical, problem));
        }
        let moved = self.change(root.tree, |item| {
            item.bytenr = root.logical.0.into();
            item.level = root.level;
            item.generation = root.generation.into();
            item.generation_v2 = root.generation.into();
            if is_subvolume(root.tree) {
                item.ctransid = root.generation.into();
                item.ctime = now;
            }
        });
        debug_assert!(
            !matches!(root.tree, ROOT_TREE | CHUNK_TREE),
            "the superblock has their roots"
        );
        let key = Key::new(root.tree, larder_format::ItemType::ROOT_ITEM, 0);
        moved.ok_or(Error::MissingItem { tree: ROOT_TREE, key })
    }

    /// Adds to the size of a tree in bytes, or subtracts. The kernel sizes its global reserve by
    /// the sizes of the trees of bookkeeping: a wrong size could leave no space for other uses.
    pub(super) fn grown(&mut self, tree: u64, by_bytes: i64) {
        self.change(tree, |item| {
            item.bytes_used = item.bytes_used.get().saturating_add_signed(by_bytes).into();
        });
    }

    /// Whether any item is to be written.
    pub(super) fn is_dirty(&self) -> bool {
        self.open.values().any(|open| open.is_dirty)
    }

    /// Writes changed items to the root tree.
    pub(super) fn write(&mut self, root_tree: &mut dyn Items) -> Result<()> {
        for open in self.open.values_mut().filter(|open| open.is_dirty) {
            match root_tree.get(open.key)? {
                Some(stored) if same(&stored, &open.item) => {}
                Some(_) => root_tree.replace(open.key, open.item.as_bytes())?,
                None => root_tree.insert(open.key, open.item.as_bytes())?,
            }
            open.is_dirty = false;
        }
        Ok(())
    }
}

fn same(stored: &[u8], item: &RootItem) -> bool {
    read_exact_item::<RootItem>(stored).is_ok_and(|stored| stored == item)
}
