//! Inodes in memory, of a file system that is open for writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_btree::LiveTree;
use larder_format::item::{InodeFlags, InodeItem};
use larder_format::{FormatError, ItemType, Key};
use larder_locks::rank::{APPENDING, CHANGING, FLUSHING, READING, STATES};
use larder_locks::{RankedMutex, RankedReadGuard, RankedRwLock, RankedWriteGuard};
use larder_transaction::{Items, TreeItems};
use parking_lot::Mutex;

use crate::cache::extent_map::ExtentMap;
use crate::cache::modified_extents::ModifiedExtents;
use crate::cache::page_cache::PageCache;
use crate::changed::Changed;
use crate::error::{Error, Result};
use crate::item::id::InodeId;
use crate::item::links::Link;
use crate::item::metadata::FileType;
use crate::live::delayed::queued::DelayedItems;
use crate::live::delayed::table::DelayedInodes;
use crate::live::inherited::Inherited;
use crate::live::opens::Opens;
use crate::live::orphans::{Orphan, Orphans};

/// The first index of a name in a directory: those below are of `.` and `..`.
pub(crate) const FIRST_INDEX: u64 = 2;
/// The last one: listings count in positions of files, which end here.
pub(crate) const LAST_INDEX: u64 = i64::MAX as u64;

/// An inode in memory: all handles share one, each through an
/// [`OpenInode`](crate::live::open::OpenInode).
pub(crate) struct LiveInode {
    id: InodeId,
    file_type: FileType,
    tree: Arc<LiveTree>,
    orphans: Arc<Orphans>,
    delayed_inodes: Arc<DelayedInodes>,
    pub(crate) delayed: DelayedItems,
    /// A cache of its extents.
    extents: Arc<ExtentMap>,
    /// Its extents that the log does not have.
    pub(crate) modified_extents: Mutex<ModifiedExtents>,
    /// Held by the thread that writes at its end, from looking where that is on.
    pub(crate) appending: RankedMutex<(), APPENDING>,
    /// Held by the thread that changes its data or size, except by writeback.
    pub(crate) changing: RankedMutex<(), CHANGING>,
    /// Held by the thread that writes its data back, or changes its extents in another way.
    pub(crate) flushing: RankedMutex<(), FLUSHING>,
    /// Shared by threads that read its extents and their data from the devices. Held exclusively by
    /// the thread that changes the extents, until it is done.
    pub(crate) reading: RankedRwLock<(), READING>,
    /// How often it is open, and whether it has a name. The latter changes under the state's lock.
    pub(crate) opens: Opens,
    /// Its tree has nothing of it any more. The last thread that has it open sets this.
    is_deleted: AtomicBool,
    /// For a directory: its name, once its reference was read.
    name: Mutex<Option<Link>>,
    state: RankedRwLock<InodeState, STATES>,
}

/// The changing parts of an inode.
pub(crate) struct InodeState {
    /// The item as in the tree or queued, except for times that are newer here while data is dirty.
    pub(crate) item: InodeItem,
    /// Size in bytes as all threads see it; the item's follows at writeback.
    pub(crate) size_bytes: u64,
    /// Data that the trees do not have.
    pub(crate) pages: PageCache,
    /// The sequence number of the item when the inode was last fsynced.
    pub(crate) synced: Option<u64>,
    /// For a directory, the index of the next name, once a thread needed it.
    pub(crate) next_index: Option<u64>,
    /// For a directory, what new inodes inherit, once a thread needed it.
    pub(crate) inherited: Option<Arc<Inherited>>,
    /// It is known to have no capabilities.
    pub(crate) has_no_capability: bool,
    /// It never had a name, and can still get one.
    pub(crate) is_unnamed: bool,
}

/// The state of an inode, locked for changes.
pub(crate) type StateGuard<'a> = RankedWriteGuard<'a, InodeState, STATES>;

impl LiveInode {
    pub(crate) fn new(
        id: InodeId,
        file_type: FileType,
        item: InodeItem,
        tree: Arc<LiveTree>,
        orphans: Arc<Orphans>,
        delayed_inodes: Arc<DelayedInodes>,
        extents: Arc<ExtentMap>,
    ) -> Self {
        let state = InodeState {
            item,
            size_bytes: item.size.get(),
            pages: PageCache::default(),
            synced: None,
            next_index: None,
            inherited: None,
            has_no_capability: false,
            is_unnamed: false,
        };
        Self {
            id,
            file_type,
            tree,
            orphans,
            delayed_inodes,
            delayed: DelayedItems::default(),
            extents,
            modified_extents: Mutex::default(),
            appending: RankedMutex::default(),
            changing: RankedMutex::default(),
            flushing: RankedMutex::default(),
            reading: RankedRwLock::default(),
            opens: Opens::default(),
            is_deleted: AtomicBool::new(false),
            name: Mutex::default(),
            state: RankedRwLock::new(state),
        }
    }

    /// The sequence number of its changes, unless all are durable: in the commit of
    /// `durable_generation`, or by fsync. Its data has been written back.
    pub(crate) fn unsynced(&self, durable_generation: u64) -> Option<u64> {
        let state = self.read();
        let sequence = state.item.sequence.get();
        let is_committed = state.item.transid.get() <= durable_generation;
        let is_durable = is_committed || state.synced == Some(sequence);
        (!state.pages.is_clean() || !is_durable).then_some(sequence)
    }

    /// Notes that all changes up to this sequence number are durable.
    pub(crate) fn synced(&self, sequence: u64) {
        self.write().synced = Some(sequence);
    }

    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    pub(crate) fn number(&self) -> u64 {
        self.id.number
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.file_type
    }

    pub(crate) fn tree(&self) -> &Arc<LiveTree> {
        &self.tree
    }

    pub(crate) fn extents(&self) -> &Arc<ExtentMap> {
        &self.extents
    }

    pub(crate) fn delayed_inodes(&self) -> &DelayedInodes {
        &self.delayed_inodes
    }

    /// The item with the size that all threads see.
    pub(crate) fn item(&self) -> InodeItem {
        let state = self.read();
        InodeItem { size: state.size_bytes.into(), ..state.item }
    }

    /// Bytes of dirty data.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.read().pages.unwritten_bytes()
    }

    /// Notes that the tree has nothing of it any more.
    pub(crate) fn mark_deleted(&self) {
        self.is_deleted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.opens.is_unlinked()
    }

    /// Whether `is_its` accepts its name; `None` if the name is not known.
    pub(crate) fn is_named(&self, is_its: impl FnOnce(&Link) -> bool) -> Option<bool> {
        self.name.lock().as_ref().map(is_its)
    }

    /// Notes its name, or that it changes. The state of the directory that has the name is locked.
    pub(crate) fn set_name(&self, name: Option<Link>) {
        *self.name.lock() = name;
    }

    #[track_caller]
    pub(crate) fn read(&self) -> RankedReadGuard<'_, InodeState, STATES> {
        self.state.read()
    }

    #[track_caller]
    pub(crate) fn write(&self) -> StateGuard<'_> {
        self.state.write()
    }

    /// Runs `look` while no thread changes the inode. `look` may not ask the inode for its
    /// attributes.
    pub(crate) fn while_locked<T>(&self, look: impl FnOnce() -> T) -> T {
        let _state = self.read();
        look()
    }

    pub(crate) fn key(&self, item_type: ItemType, offset: u64) -> Key {
        Key::new(self.id.number, item_type, offset)
    }

    /// Takes the index of the next name in this directory, whose state is `state`.
    ///
    /// # Errors
    /// Fails if a damaged item has taken the last index.
    pub(crate) fn next_index(&self, state: &mut InodeState) -> Changed<u64> {
        let index = self.end_index(state)?;
        if index > LAST_INDEX {
            let (tree, key) = (self.id.subvolume, self.key(ItemType::DIR_INDEX, index));
            let problem = FormatError::invalid("directory", "no index is left for another name");
            return Err(larder_transaction::Error::Item { tree, key, problem });
        }
        state.next_index = Some(index + 1);
        Ok(index)
    }

    /// The index of the next name in this directory, whose state is `state`.
    pub(crate) fn end_index(&self, state: &mut InodeState) -> Changed<u64> {
        let index = if let Some(index) = state.next_index {
            index
        } else {
            let last = self.key(ItemType::DIR_INDEX, u64::MAX);
            let found = TreeItems::new(self.tree.clone()).at_or_before(last)?;
            let is_own =
                |key: &Key| (key.objectid, key.item_type) == (self.id.number, ItemType::DIR_INDEX);
            let found = found.filter(|(key, _)| is_own(key));
            found.map_or(FIRST_INDEX, |(key, _)| key.offset.saturating_add(1))
        };
        state.next_index = Some(index);
        Ok(index)
    }
}

impl InodeState {
    /// Notes a change in a transaction: of the inode itself, and of its content if `of_content`.
    pub(crate) fn touch(&mut self, generation: u64, of_content: bool) {
        self.item.transid = generation.into();
        self.item.sequence += 1;
        self.item.ctime = larder_device::now().into();
        if of_content {
            self.item.mtime = self.item.ctime;
        }
    }

    /// The names in a directory became longer by `bytes` together, or shorter if it is negative.
    pub(crate) fn names_grew(&mut self, generation: u64, bytes: i64) {
        // Each name is in two items.
        self.size_bytes = self.size_bytes.saturating_add_signed(2 * bytes);
        self.item.size = self.size_bytes.into();
        self.touch(generation, true);
    }

    /// Whether names can be created in this directory.
    pub(crate) fn check_may_name(&self) -> Result<()> {
        if self.item.nlink.get() == 0 {
            return Err(Error::NotFound);
        }
        self.check_mutable()
    }

    /// Whether names can be removed from this directory, or this inode can lose one.
    pub(crate) fn check_may_unname(&self) -> Result<()> {
        if self.item.flags().contains(InodeFlags::APPEND) {
            return Err(Error::NotPermitted("it can only grow"));
        }
        self.check_mutable()
    }

    pub(crate) fn check_mutable(&self) -> Result<()> {
        if self.item.flags().contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("it is immutable"));
        }
        Ok(())
    }
}

impl Drop for LiveInode {
    fn drop(&mut self) {
        if self.is_unlinked() && !*self.is_deleted.get_mut() {
            self.orphans.push(Orphan { tree: self.tree.clone(), number: self.id.number });
        }
    }
}

impl std::fmt::Debug for LiveInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveInode").field("id", &self.id).finish_non_exhaustive()
    }
}
