//! Writing logs: changes of a few inodes become durable without a commit.
//!
//! # Invariants
//! - A thread that writes a log holds `committing` until the log is durable: no commit comes in
//!   between, and one thread at a time writes the superblock.
//! - The superblock that leads to a log is that of the last commit, except for the log.
//! - A log refers to nothing in a block group that the last commit does not have.
//! - A file system with mixed block groups gets no log: the caller commits.
//! - A log that could not be completed is never written: then logs are void until the next commit,
//!   which also frees their blocks. A log that a device missed does not count as written.

use std::sync::Arc;

use larder_btree::{LiveTree, Readahead, Tree, TreeRoot};
use larder_format::feature::IncompatFlags;
use larder_format::item::RootItem;
use larder_format::node::MAX_LEVELS;
use larder_format::objectid::TREE_LOG;
use larder_format::{ItemType, Key, Logical};
use zerocopy::{FromZeros, IntoBytes};

use super::trees::{Log, Logs};
use crate::error::{Error, Result};
use crate::items::Items;
use crate::manager::{Exclusive, TransactionManager, parse_root, write_blocks};
use crate::space::{Priority, Reservation, SpaceKind};
use crate::tree_items::TreeItems;

/// The logs while a thread fills them. No other thread changes any tree meanwhile.
#[derive(Debug)]
pub struct LogWriter<'m, 'l> {
    exclusive: Exclusive<'m>,
    logs: &'l mut Logs,
    reservation: Option<Reservation>,
}

impl<'m> LogWriter<'m, '_> {
    /// Lets `fill` change log trees, and makes the changes durable with one flush before the
    /// superblock and one after. Returns whether it did: if not, because `fill` returned false or
    /// the logs cannot take the changes, the caller commits.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn write(
        manager: &'m TransactionManager,
        fill: impl FnOnce(&mut LogWriter<'_, '_>) -> Result<bool>,
    ) -> Result<bool> {
        if manager.volume().superblock().has_incompat(IncompatFlags::MIXED_GROUPS) {
            return Ok(false);
        }
        let mut logs = manager.lock_committing();
        if logs.is_void {
            return Ok(false);
        }
        let exclusive = manager.quiesce();
        manager.check_alive()?;
        logs.is_void = true;
        let mut writer = LogWriter { exclusive, logs: &mut logs, reservation: None };
        if !fill(&mut writer)? {
            return Ok(false);
        }
        writer.enter_roots()?;
        if !can_log(manager) {
            return Ok(false);
        }
        drop(writer);
        let is_written =
            write_out(manager, &logs).is_ok() && !manager.volume().has_untold_failure();
        logs.is_void = !is_written;
        Ok(is_written)
    }

    /// The right to change trees.
    pub fn exclusive(&self) -> &Exclusive<'m> {
        &self.exclusive
    }

    /// Reserves space for changing `items` items of logs. Returns whether there is enough.
    pub fn reserve(&mut self, items: u64) -> Result<bool> {
        let manager = self.exclusive.manager();
        // Each may take a leaf and split it; items that are logged together share the nodes above.
        let nodes = 2 * (items + 2 * MAX_LEVELS as u64);
        let len_bytes = nodes * u64::from(manager.volume().nodesize());
        match manager.space().try_reserve(SpaceKind::Metadata, len_bytes, Priority::Normal) {
            Ok(reservation) => self.reservation = Some(reservation),
            Err(Error::NoSpace { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// The log tree of a subvolume, if it has one.
    pub fn log(&self, subvolume: u64) -> Option<&Arc<LiveTree>> {
        self.logs.trees.get(&subvolume).map(|log| &log.tree)
    }

    /// The log tree of a subvolume, created if it has none.
    pub fn log_or_new(&mut self, subvolume: u64) -> Result<Arc<LiveTree>> {
        if let Some(log) = self.logs.trees.get(&subvolume) {
            return Ok(log.tree.clone());
        }
        let tree = self.exclusive.manager().trees().forest().create_unlisted_tree(TREE_LOG)?;
        self.logs.trees.insert(subvolume, Log { tree: tree.clone(), entered: None });
        Ok(tree)
    }

    /// The tree of a subvolume in the last commit; `None` if it had none.
    pub fn committed(&self, subvolume: u64) -> Result<Option<Tree>> {
        let manager = self.exclusive.manager();
        let mut cursor = manager.durable_root_tree().cursor(Readahead::None);
        if !cursor.seek_last(Key::new(subvolume, ItemType::ROOT_ITEM, u64::MAX))? {
            return Ok(None);
        }
        let Some((key, data)) = cursor.item() else { return Ok(None) };
        if (key.objectid, key.item_type) != (subvolume, ItemType::ROOT_ITEM) {
            return Ok(None);
        }
        let item = parse_root(key, data)?;
        if item.refs.get() == 0 {
            return Ok(None);
        }
        let cache = manager.trees().forest().cache().clone();
        Ok(Some(Tree::new(cache, TreeRoot::of_item(subvolume, &item))))
    }

    /// Inserts the checksums of the sectors from `start` on into a log.
    pub fn insert_checksums(&self, log: &Arc<LiveTree>, start: Logical, sums: &[u8]) -> Result<()> {
        let mut items = TreeItems::new(log.clone());
        self.exclusive.manager().checksum_items().insert(&mut items, start, sums)
    }

    /// Updates the tree of log trees.
    fn enter_roots(&mut self) -> Result<()> {
        let manager = self.exclusive.manager();
        let moved = self.logs.trees.values().any(|log| log.entered != Some(log.tree.root()));
        if !moved {
            return Ok(());
        }
        let roots = match &self.logs.roots {
            Some(roots) => roots.clone(),
            None => manager.trees().forest().create_unlisted_tree(TREE_LOG)?,
        };
        self.logs.roots = Some(roots.clone());
        let mut items = TreeItems::new(roots);
        for (subvolume, log) in &mut self.logs.trees {
            let root = log.tree.root();
            if log.entered == Some(root) {
                continue;
            }
            let key = Key::new(TREE_LOG, ItemType::ROOT_ITEM, *subvolume);
            let item = root_item(root, manager.volume().nodesize());
            match log.entered {
                Some(_) => items.replace(key, item.as_bytes())?,
                None => items.insert(key, item.as_bytes())?,
            }
            log.entered = Some(root);
        }
        Ok(())
    }
}

/// Whether the superblock and the block groups are those of the last commit.
fn can_log(manager: &TransactionManager) -> bool {
    !manager.is_superblock_dirty() && !manager.space().has_new_groups()
}

fn write_out(manager: &TransactionManager, logs: &Logs) -> Result<()> {
    let Some(roots) = &logs.roots else { return Ok(()) };
    let (volume, blocks) = (manager.volume(), manager.trees().forest().write_unlisted());
    if blocks.is_empty() {
        return Ok(volume.flush()?);
    }
    write_blocks(volume, &blocks)?;
    let mut superblock = volume.superblock();
    let log = Arc::make_mut(&mut superblock);
    let root = roots.root();
    log.log_root = root.logical.0.into();
    log.log_root_level = root.level;
    volume.write_first_copies(&superblock)?;
    blocks.finish();
    Ok(())
}

fn root_item(root: TreeRoot, nodesize: u32) -> RootItem {
    let mut item = RootItem::new_zeroed();
    item.inode.generation = 1.into();
    item.inode.size = 3.into();
    item.inode.nlink = 1.into();
    item.inode.nbytes = u64::from(nodesize).into();
    item.inode.mode = 0o040_755.into();
    item.bytenr = root.logical.0.into();
    item.level = root.level;
    item.generation = root.generation.into();
    item.generation_v2 = root.generation.into();
    item
}
