//! Changing a file system.
//!
//! # Invariants
//! - A thread that changes a tree has a handle of the running transaction. All refusals come before
//!   the first change; an error after it aborts the transaction.
//! - Space is reserved before an inode is locked, since reserving may wait for a commit.
//! - The item of a live inode is what its tree has or, through `delayed`, will have, except for
//!   times and size while data is dirty. All threads share one live inode.
//! - A tree has no inode without a name except those that an ORPHAN_ITEM lists.
//! - Data is on the devices before any item refers to it. Until the trees refer to it, readers find
//!   it in memory.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use larder_btree::{LiveTree, TreeView};
use larder_format::feature::IncompatFlags;
use larder_format::{ItemType, Key, objectid};
use larder_locks::rank::{RENAMES, SUBVOLUMES};
use larder_locks::{RankedMutex, RankedRwLock};
use larder_transaction::TransactionManager;
use parking_lot::RwLock;

use crate::cache::extent_map::ExtentMaps;
use crate::compression::compress::WriteCompression;
use crate::compression::compressors::Compressors;
use crate::error::{Error, Result};
use crate::item::property::inheritable;
use crate::live::delayed::table::DelayedInodes;
use crate::live::deleted_subvolumes::DeletedSubvolumes;
use crate::live::dirty_inodes::DirtyInodes;
use crate::live::ids::Ids;
use crate::live::inode::LiveInode;
use crate::live::logged_inodes::LoggedInodes;
use crate::live::names::Names;
use crate::live::orphans::Orphans;
use crate::live::pending_snapshots::PendingSnapshots;
use crate::live::renamed_subvolumes::RenamedSubvolumes;
use crate::live::send_guards::SendGuards;
use crate::live::subvolume::LiveSubvolume;
use crate::live::sync_queue::Syncs;
use crate::live::table::InodeTable;
use crate::settings::inspector::Inspector;
use crate::settings::policy::WritePolicy;
use crate::settings::tuning::{FindExtents, Tuning};
use crate::stats::{DelayedStats, ExtentMapStats};

/// The parts of a file system that exist only while it is open for writing.
pub(crate) struct Writer {
    pub(crate) manager: Arc<TransactionManager>,
    pub(crate) inodes: InodeTable,
    pub(crate) delayed: Arc<DelayedInodes>,
    pub(crate) extent_maps: Arc<ExtentMaps>,
    pub(crate) dirty: DirtyInodes,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) snapshots: PendingSnapshots,
    pub(crate) deleted: DeletedSubvolumes,
    pub(crate) renamed: RenamedSubvolumes,
    pub(crate) ids: Ids,
    /// Subvolumes that must not change while they are sent.
    pub(crate) send_guards: SendGuards,
    /// In tests.
    pub(crate) inspector: OnceLock<Inspector>,
    /// How often content has moved.
    pub(crate) moves: AtomicU64,
    /// The inodes that logs have.
    pub(crate) logged_inodes: Arc<LoggedInodes>,
    pub(crate) syncs: Syncs,
    /// How data is compressed if its file has no property for it.
    pub(crate) compression: RwLock<Option<WriteCompression>>,
    pub(crate) compressors: Compressors,
    pub(crate) policy: RwLock<WritePolicy>,
    /// Held by the thread that moves a directory, so that meanwhile no directory comes to lie below
    /// another. Threads that need directories to stay where they are share it.
    pub(crate) renames: RankedRwLock<(), RENAMES>,
    /// Held by the thread that makes or removes a subvolume.
    pub(crate) subvolumes: RankedMutex<(), SUBVOLUMES>,
}

impl Writer {
    pub(crate) fn new(
        manager: Arc<TransactionManager>,
        cache_bytes: usize,
        dirty_bytes: usize,
        tuning: Tuning,
    ) -> Self {
        let orphans = Arc::new(Orphans::new(manager.clone()));
        let space = manager.space().clone();
        let delayed =
            Arc::new(DelayedInodes::new(space, manager.volume().nodesize(), tuning, dirty_bytes));
        let keeps_extents = tuning.extents == FindExtents::InMemory;
        let extent_maps = ExtentMaps::new(keeps_extents, cache_bytes);
        Self {
            manager,
            inodes: InodeTable::new(orphans.clone(), delayed.clone(), extent_maps.clone()),
            delayed,
            extent_maps,
            dirty: DirtyInodes::new(dirty_bytes),
            orphans,
            snapshots: PendingSnapshots::default(),
            deleted: DeletedSubvolumes::default(),
            ids: Ids::default(),
            send_guards: SendGuards::default(),
            inspector: OnceLock::new(),
            moves: AtomicU64::new(0),
            logged_inodes: Arc::default(),
            renamed: RenamedSubvolumes::default(),
            syncs: Syncs::default(),
            compression: RwLock::default(),
            compressors: Compressors::default(),
            policy: RwLock::default(),
            renames: RankedRwLock::default(),
            subvolumes: RankedMutex::default(),
        }
    }

    pub(crate) fn manager(&self) -> &TransactionManager {
        &self.manager
    }

    pub(crate) fn delayed_stats(&self) -> DelayedStats {
        self.delayed.stats()
    }

    /// Notes that nothing of a deleted subvolume is open any more. Its tree is dropped when
    /// deletions are next completed.
    pub(crate) fn subvolume_is_unused(&self, id: u64) {
        self.deleted.push(id);
        self.manager.note_work();
    }

    /// The names in the tree of an inode.
    pub(crate) fn names_of(&self, live: &LiveInode) -> Names {
        let volume = self.manager.volume();
        let has_extended_refs = volume.superblock().has_incompat(IncompatFlags::EXTENDED_IREF);
        Names::new(live.tree(), volume.nodesize(), has_extended_refs, self.logged_inodes.clone())
    }

    /// Sets the feature flag for `value` in the superblock: data may be compressed that way.
    pub(crate) fn note_compression(&self, value: &[u8]) {
        let feature = match inheritable(value) {
            Some(b"lzo") => IncompatFlags::COMPRESS_LZO,
            Some(b"zstd") => IncompatFlags::COMPRESS_ZSTD,
            _ => return,
        };
        if !self.manager.superblock().has_incompat(feature) {
            self.manager.change_superblock(|superblock| {
                let flags = superblock.incompat_flags.get() | feature.bits();
                superblock.incompat_flags = flags.into();
            });
        }
    }

    pub(crate) fn extent_map_stats(&self) -> ExtentMapStats {
        self.extent_maps.stats()
    }

    /// Whether any writeback or deletion is pending.
    pub(crate) fn has_more(&self) -> bool {
        let has_deleted = !self.orphans.is_empty() || !self.deleted.is_empty();
        has_deleted || !self.dirty.is_empty() || !self.delayed.is_empty()
    }

    /// Whether anything was changed since the last commit.
    pub(crate) fn has_changes(&self) -> bool {
        self.manager.has_changes() || !self.dirty.is_empty() || !self.delayed.is_empty()
    }

    pub(crate) fn inodes(&self) -> &InodeTable {
        &self.inodes
    }

    /// A tree that is not that of a subvolume.
    pub(crate) fn tree(&self, id: u64) -> Result<TreeView> {
        Ok(TreeView::Live(self.live_tree(id)?))
    }

    pub(crate) fn live_tree(&self, id: u64) -> Result<Arc<LiveTree>> {
        let key = Key::new(id, ItemType::ROOT_ITEM, 0);
        let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
        self.manager.trees().open(id)?.ok_or(missing)
    }

    /// Opens a subvolume for changing it.
    pub(crate) fn open_subvolume(&self, id: u64) -> Result<LiveSubvolume> {
        let tree = self.manager.trees().open(id)?.ok_or(Error::NoSuchSubvolume(id))?;
        let inode_numbers = self.ids.inode_numbers(&tree)?;
        let item = self.manager.trees().root_item(id);
        Ok(LiveSubvolume {
            tree,
            inode_numbers,
            is_read_only: AtomicBool::new(item.is_some_and(|(_, item)| item.is_read_only())),
            is_deleted: AtomicBool::new(false),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.delayed.clear();
    }
}
