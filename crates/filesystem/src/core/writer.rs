//! Changing a file system.
//!
//! # Invariants
//! - Whoever changes a tree has a handle of the running transaction. What can be refused is refused
//!   before the first change; an error after it gives the transaction up.
//! - Lock order: `renames`, inodes' `changing` and then `flushing` (each by subvolume and number), the
//!   transaction's door, a inode's `reading`, inodes' states (by subvolume and number), a inode's delayed
//!   items, the table of inodes, tree blocks, the sets of dirty and delayed inodes. Space is promised with
//!   none of these held but `renames` and `flushing`, since making room may take a commit; a commit takes
//!   no `renames`, and no `flushing` whose holder waits for room.
//! - A inode's item is what its tree has or, in `delayed`, is to have, but for times and size while data is
//!   dirty. Nobody has a inode in memory that differs from another's: one inode, one [`LiveInode`].
//! - A tree has no inode without a name but those that an ORPHAN_ITEM lists.
//! - Data is on the devices before any item refers to it.
//! - No state is locked while a device works for data. Who changes the extents of a file has its `flushing`,
//!   `reading` alone and the state locked alone; who changes its data or size has `changing`, but for who
//!   writes back. So extents stay for who has `flushing`, or `reading` in any way, and size and data for who
//!   has `changing`.
//! - Data that is being written back is in memory until the trees have it: readers take it from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_btree::{BlockCache, LiveTree, TreeView};
use larder_format::{ItemType, Key, objectid};
use larder_transaction::space::Priority;
use larder_transaction::{BackgroundCommits, Handle, TransactionManager};
use larder_volume::Volume;
use parking_lot::{Mutex, RwLock};

use crate::core::ids::{Ids, InodeNumbers};
use crate::core::policy::WritePolicy;
use crate::core::tuning::FindExtents;
use crate::error::{Error, Result};
use crate::file::extent_map::ExtentMaps;
use crate::file::writeback::compress::WriteCompression;
use crate::file::writeback::flush::DirtyInodes;
use crate::filesystem::commit::Hook;
use crate::filesystem::handle::Filesystem;
use crate::filesystem::options::WriteOptions;
use crate::filesystem::stats::{DelayedStats, ExtentMapStats};
use crate::inode::delayed::DelayedInodes;
use crate::inode::handle::Inode;
use crate::inode::live::InodeTable;
use crate::inode::live::LiveInode;
use crate::inode::orphans::Orphans;
use crate::log::logged_inodes::LoggedInodes;
use crate::log::replay;
use crate::log::sync::Syncs;
use crate::subvolume::delete::DeletedSubvolumes;
use crate::subvolume::handle::Subvolume;
use crate::subvolume::send_guard::SendGuards;
use crate::subvolume::snapshot::PendingSnapshots;

/// What the engine's calls return: an error in the middle of a change is one of these.
pub(crate) type Changed<T> = larder_transaction::Result<T>;

/// What a file system that is open for writing has besides its trees.
pub(crate) struct Writer {
    pub(crate) manager: Arc<TransactionManager>,
    pub(crate) inodes: InodeTable,
    pub(crate) delayed: Arc<DelayedInodes>,
    pub(crate) extent_maps: Arc<ExtentMaps>,
    pub(crate) dirty: DirtyInodes,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) snapshots: PendingSnapshots,
    pub(crate) deleted: DeletedSubvolumes,
    pub(crate) ids: Ids,
    /// Subvolumes that are to stay as they are.
    pub(crate) send_guards: SendGuards,
    /// The inodes that logs have.
    pub(crate) logged_inodes: Arc<LoggedInodes>,
    pub(crate) syncs: Syncs,
    /// How data is compressed that does not say so itself.
    pub(crate) compression: RwLock<Option<WriteCompression>>,
    pub(crate) policy: RwLock<WritePolicy>,
    /// Held by the one who moves a directory: who is below whom does not change meanwhile.
    pub(crate) renames: Mutex<()>,
    /// Held by the one who makes or removes a subvolume.
    pub(crate) subvolumes: Mutex<()>,
}

/// What a subvolume has that can be changed.
pub(crate) struct LiveSubvolume {
    pub(crate) tree: Arc<LiveTree>,
    pub(crate) inode_numbers: InodeNumbers,
    /// Changed with the door closed only.
    pub(crate) is_read_only: AtomicBool,
    /// It was deleted, and is there for what is open of it. Changed with the door closed only.
    pub(crate) is_deleted: AtomicBool,
}

impl Filesystem {
    /// Opens the file system on `volume`, which is open for writing, for reading and writing.
    ///
    /// What is done is durable after [`sync`](Self::sync). Dropping the last handle without it leaves what
    /// the last commit made durable. Logs that a crash left are replayed first, and deletions that were
    /// interrupted are completed.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) where a sound file system can only be read.
    pub fn open_writable(volume: Arc<Volume>, options: &WriteOptions) -> Result<Self> {
        let WriteOptions { cache_bytes, commit_interval, commit_bytes, tuning } = *options;
        let cache = Arc::new(BlockCache::new(volume.clone(), cache_bytes));
        let manager = Arc::new(TransactionManager::open_replaying(
            volume.clone(),
            cache.clone(),
            replay::replay,
        )?);
        let orphans = Arc::new(Orphans::new(manager.clone()));
        let space = manager.space().clone();
        let delayed = Arc::new(DelayedInodes::new(space, volume.nodesize(), tuning));
        let extent_maps = ExtentMaps::new(tuning.extents == FindExtents::InMemory);
        let writer = Writer {
            manager: manager.clone(),
            inodes: InodeTable::new(orphans.clone(), delayed.clone(), extent_maps.clone()),
            delayed,
            extent_maps,
            dirty: DirtyInodes::default(),
            orphans,
            snapshots: PendingSnapshots::default(),
            deleted: DeletedSubvolumes::default(),
            ids: Ids::default(),
            send_guards: SendGuards::default(),
            logged_inodes: Arc::default(),
            syncs: Syncs::default(),
            compression: RwLock::default(),
            policy: RwLock::default(),
            renames: Mutex::default(),
            subvolumes: Mutex::default(),
        };
        let filesystem = Self::with_writer(volume, cache, writer)?;
        let hook = Arc::new(Hook::new(&filesystem));
        manager.add_hook(hook);
        filesystem.resume_deletions()?;
        Ok(match commit_interval {
            Some(interval) => {
                let shared = Arc::downgrade(filesystem.shared());
                // Whoever let go of an unlinked inode last may not have been one who deletes them.
                let tidy = move || {
                    if let Some(shared) = shared.upgrade() {
                        Self::from(shared).delete_unlinked();
                    }
                };
                let commits = BackgroundCommits::start(manager, interval, commit_bytes, tidy);
                filesystem.committing(commits)
            }
            None => filesystem,
        })
    }

    /// What changes the file system.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.try_writer().ok_or(Error::NotWritable)
    }
}

impl Writer {
    pub(crate) fn manager(&self) -> &TransactionManager {
        &self.manager
    }

    pub(crate) fn delayed_stats(&self) -> DelayedStats {
        self.delayed.stats()
    }

    pub(crate) fn extent_map_stats(&self) -> ExtentMapStats {
        self.extent_maps.stats()
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
        self.manager.tree(id)?.ok_or(missing)
    }

    /// Opens a subvolume for changing it.
    pub(crate) fn open_subvolume(&self, id: u64) -> Result<LiveSubvolume> {
        let tree = self.manager.tree(id)?.ok_or(Error::NoSuchSubvolume(id))?;
        let inode_numbers = self.ids.inode_numbers(&tree)?;
        let item = self.manager.root_item(id);
        Ok(LiveSubvolume {
            tree,
            inode_numbers,
            is_read_only: AtomicBool::new(item.is_some_and(|(_, item)| item.is_read_only())),
            is_deleted: AtomicBool::new(false),
        })
    }

    /// Joins the running transaction to change `subvolume`, with room for inserting `items` items.
    pub(crate) fn join(
        &self,
        subvolume: &Subvolume,
        items: u64,
        priority: Priority,
    ) -> Result<Handle<'_>> {
        self.relieve()?;
        let handle = self.manager.start(items, priority)?;
        subvolume.live()?.check_writable()?;
        Ok(handle)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.delayed.clear();
    }
}

impl LiveSubvolume {
    pub(crate) fn tree(&self) -> &Arc<LiveTree> {
        &self.tree
    }

    /// Whether it was deleted. What it says holds while the caller has a handle.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Relaxed)
    }

    /// Refuses what a subvolume has to be named for. What it says holds while the caller has a handle.
    pub(crate) fn check_not_deleted(&self) -> Result<()> {
        if self.is_deleted() { Err(Error::NoSuchSubvolume(self.tree.id())) } else { Ok(()) }
    }

    /// Refuses changes. What it says holds while the caller has a handle.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Relaxed) {
            return Err(Error::ReadOnlySubvolume);
        }
        Ok(())
    }
}

impl Subvolume {
    pub(crate) fn live(&self) -> Result<&LiveSubvolume> {
        self.try_live().ok_or(Error::NotWritable)
    }
}

impl Inode {
    /// What those who have the inode open share.
    pub(crate) fn live_inode(&self) -> Result<&Arc<LiveInode>> {
        match self.try_live_inode() {
            Some(live) => Ok(live),
            None if self.is_empty_subvolume() => {
                Err(Error::NotPermitted("it stands for a subvolume that is not there"))
            }
            None => Err(Error::NotWritable),
        }
    }

    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.subvolume().filesystem().writer()
    }

    /// Refuses to list or change names in a directory that was removed, as the root of a deleted subvolume was. To
    /// change something the caller has a handle.
    pub(crate) fn check_not_removed(&self) -> Result<()> {
        let is_deleted = self.subvolume().try_live().is_some_and(LiveSubvolume::is_deleted);
        let is_removed = is_deleted && self.is_subvolume_root();
        if is_removed { Err(Error::NotFound) } else { Ok(()) }
    }
}

/// The inode of an inode that was checked to have one.
pub(crate) fn live_inode_of(inode: &Inode) -> &Arc<LiveInode> {
    inode.try_live_inode().expect("it can be changed")
}

/// Runs changes of which an error leaves something half done.
pub(crate) fn apply<T>(handle: &Handle<'_>, change: impl FnOnce() -> Changed<T>) -> Changed<T> {
    change().inspect_err(|error| handle.abort(error.clone()))
}
