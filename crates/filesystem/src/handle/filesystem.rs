//! The file system: a volume and the roots of its trees.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use larder_btree::{BlockCache, Tree, TreeRoot, TreeView};
use larder_format::item::{DirEntries, RootItem};
use larder_format::{FormatError, ItemType, Key, Superblock, Uuid, name_hash, objectid};
use larder_platform::OsStringExt;
use larder_transaction::{Aborted, BackgroundCommits};
use larder_volume::Volume;
use parking_lot::Mutex;

use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::handle::last_handle::LastHandle;
use crate::handle::subvolume::{Subvolume, SubvolumeState};
use crate::live::subvolume::LiveSubvolume;
use crate::stats::Stats;

/// A file system: in the state of its last commit or, open for writing, in the current state.
/// Cloning is cheap, and all threads may use it.
///
/// [Close](Self::close) one that was changed: dropping the last handle makes nothing durable, and
/// says so where changes are lost.
#[derive(Clone)]
pub struct Filesystem {
    core: Arc<Core>,
    /// The subvolumes that callers have open: one state for each, whichever handle opened it.
    subvolumes: Arc<Mutex<HashMap<u64, Weak<SubvolumeState>>>>,
    /// In the handles that callers have, not in those that a commit makes for itself: the thread
    /// ends with the last of them.
    background: Option<Arc<BackgroundCommits>>,
    /// In the same handles. Dropped after the thread has ended.
    _last: Option<Arc<LastHandle>>,
}

impl Filesystem {
    /// Opens the file system on `volume` for reading, with at most `cache_bytes` of tree blocks in
    /// memory.
    #[doc(hidden)]
    pub fn open(volume: Arc<Volume>, cache_bytes: usize) -> Result<Self> {
        let cache = Arc::new(BlockCache::new(volume.clone(), cache_bytes));
        Ok(Core::committed(volume, cache).map(Arc::new)?.into())
    }

    /// The volume that it is on.
    #[doc(hidden)]
    pub fn volume(&self) -> &Arc<Volume> {
        self.core.volume()
    }

    /// The superblock of the last commit.
    pub(crate) fn superblock(&self) -> Arc<Superblock> {
        self.core.volume().superblock()
    }

    /// Whether a crash left log trees: only these have the files that were fsynced since the last
    /// commit. Opening for writing replays them. Opening for reading does not, and ignores them.
    pub fn needs_log_replay(&self) -> bool {
        self.try_writer().is_none() && self.superblock().log_root.get() != 0
    }

    /// The transaction of the last commit.
    pub fn generation(&self) -> u64 {
        match self.try_writer() {
            Some(writer) => writer.manager().durable_generation(),
            None => self.superblock().generation.get(),
        }
    }

    /// When the last commit was made; none if that was before the file system was opened.
    pub(crate) fn committed_at(&self) -> Option<SystemTime> {
        self.try_writer()?.manager().committed_at()
    }

    /// Why and since when it is read-only, if an error made it so.
    pub(crate) fn aborted(&self) -> Option<&Aborted> {
        self.try_writer()?.manager().aborted()
    }

    /// The subvolume with this id; 5 is the top level. A deleted one is not found, even while it is
    /// in use.
    pub fn subvolume_by_id(&self, id: u64) -> Result<Subvolume> {
        let missing = Error::NoSuchSubvolume(id);
        let known = self.subvolumes.lock().get(&id).and_then(Weak::upgrade);
        if let Some(state) = known {
            let found = Subvolume::from(state);
            let is_deleted = found.try_live().is_some_and(LiveSubvolume::is_deleted);
            return if is_deleted { Err(missing) } else { Ok(found) };
        }
        if !objectid::is_subvolume(id) {
            return Err(Error::NoSuchSubvolume(id));
        }
        let live = self.try_writer().map(|writer| writer.open_subvolume(id)).transpose()?;
        let (key, item) = self
            .core
            .root_item(id)?
            .filter(|(_, item)| item.refs.get() > 0)
            .ok_or(Error::NoSuchSubvolume(id))?;
        let tree = Tree::new(self.core.cache().clone(), TreeRoot::of_item(id, &item));
        let state =
            Arc::new(SubvolumeState::new(self.clone(), tree, live.map(Arc::new), item, key.offset));
        let found = self.remember(id, state);
        // Checked again, now that a thread that deletes it finds this state: it may have been
        // deleted since.
        if let Some(writer) = self.try_writer()
            && writer.manager().trees().root_item(id).is_none_or(|(_, item)| item.refs.get() == 0)
        {
            return Err(missing);
        }
        Ok(found.into())
    }

    /// The state of a subvolume that all share: this one, unless another thread was faster.
    fn remember(&self, id: u64, state: Arc<SubvolumeState>) -> Arc<SubvolumeState> {
        let mut open = self.subvolumes.lock();
        if let Some(known) = open.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        if open.len() == open.capacity() {
            open.retain(|_, state| state.strong_count() > 0);
        }
        open.insert(id, Arc::downgrade(&state));
        state
    }

    /// The subvolume that a mount shows by default.
    pub fn default_subvolume(&self) -> Result<Subvolume> {
        self.subvolume_by_id(self.default_subvolume_id()?)
    }

    /// Id of the default subvolume, from the "default" entry of the root tree's directory.
    pub fn default_subvolume_id(&self) -> Result<u64> {
        let directory = self.superblock().root_dir_objectid.get();
        let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(b"default"));
        let Some(item) = self.root_tree().get(key)? else { return Ok(objectid::FS_TREE) };
        default_subvolume_in(&item)
            .map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem))
    }

    /// The label, up to 255 bytes; empty if there is none.
    pub fn label(&self) -> OsString {
        OsString::from_vec(match self.try_writer() {
            Some(writer) => writer.manager().superblock().label().to_vec(),
            None => self.superblock().label().to_vec(),
        })
    }

    /// Whether both are handles of one open file system.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.core(), other.core())
    }

    /// The UUID that identifies the file system.
    pub fn uuid(&self) -> Uuid {
        self.superblock().fsid()
    }

    /// The UUID in its tree blocks: the same, unless the other was changed.
    pub fn metadata_uuid(&self) -> Uuid {
        self.superblock().metadata_uuid()
    }

    /// Bytes in a sector, the unit of data.
    pub fn sector_bytes(&self) -> u32 {
        self.volume().sectorsize()
    }

    /// Bytes in a tree block.
    pub fn node_bytes(&self) -> u32 {
        self.volume().nodesize()
    }

    /// The checksum of data and trees: its number on disk, and its length in bytes.
    pub fn checksum(&self) -> (u16, u16) {
        let checksum = self.volume().checksum_type();
        (checksum as u16, checksum.size() as u16)
    }

    /// The feature flags: compatible, compatible for reading only, and incompatible ones. Those that
    /// a change has added since the file system was opened are among them.
    pub fn feature_bits(&self) -> (u64, u64, u64) {
        let superblock = match self.try_writer() {
            Some(writer) => Arc::new(writer.manager().superblock()),
            None => self.superblock(),
        };
        let (compat_ro, incompat) = (superblock.compat_ro_flags, superblock.incompat_flags);
        (superblock.compat_flags.get(), compat_ro.get(), incompat.get())
    }

    /// Counters since it was opened: cache, readahead, devices, repaired copies.
    pub fn stats(&self) -> Stats {
        Stats {
            trees: self.core.cache().stats(),
            changes: self
                .try_writer()
                .map(|w| w.manager().trees().forest().stats())
                .unwrap_or_default(),
            volume: self.volume().stats(),
            decompressed_hits: self.core.decompressed().hits(),
            decompressions: self.core.decompressed().decompressions(),
            extents: self.try_writer().map(Writer::extent_map_stats).unwrap_or_default(),
            delayed: self.try_writer().map(Writer::delayed_stats).unwrap_or_default(),
        }
    }

    /// The file system below its handles.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The tree of tree roots.
    #[doc(hidden)]
    pub fn root_tree(&self) -> &TreeView {
        self.core.root_tree()
    }

    /// The tree with this id. It must be neither that of a subvolume nor the tree of tree roots.
    #[doc(hidden)]
    pub fn tree(&self, id: u64) -> Result<TreeView> {
        self.core.tree(id)
    }

    /// The tree blocks in memory.
    #[doc(hidden)]
    pub fn cache(&self) -> &Arc<BlockCache> {
        self.core.cache()
    }

    /// The root item of the tree `id` and its key.
    #[doc(hidden)]
    pub fn root_item(&self, id: u64) -> Result<Option<(Key, Box<RootItem>)>> {
        self.core.root_item(id)
    }

    /// Whether it is open for writing.
    #[doc(hidden)]
    pub fn is_writable(&self) -> bool {
        self.try_writer().is_some()
    }

    /// The writer; none if the file system is open for reading.
    pub(crate) fn try_writer(&self) -> Option<&Writer> {
        self.core.try_writer()
    }

    /// The writer.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.core.writer()
    }

    /// The first handle of a caller, of which all others are clones. It commits in the background as
    /// long as there is any.
    pub(crate) fn for_caller(self, background: Option<BackgroundCommits>) -> Self {
        let last = self.try_writer().map(|_| Arc::new(LastHandle::new(&self.core)));
        Self { background: background.map(Arc::new), _last: last, ..self }
    }

    /// Changes the interval of commits in the background, if there are any, and restarts it.
    pub fn set_commit_interval(&self, interval: Duration) {
        if let Some(background) = &self.background {
            background.set_interval(interval);
        }
    }

    /// Bytes that extents use on all block groups together.
    pub fn used_bytes(&self) -> u64 {
        match self.try_writer() {
            Some(writer) => writer.manager().space().bytes_used(),
            None => self.superblock().bytes_used.get(),
        }
    }
}

impl From<Arc<Core>> for Filesystem {
    fn from(core: Arc<Core>) -> Self {
        Self { core, subvolumes: Arc::default(), background: None, _last: None }
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let superblock = self.superblock();
        f.debug_struct("Filesystem")
            .field("fsid", &superblock.fsid())
            .field("generation", &superblock.generation.get())
            .finish_non_exhaustive()
    }
}

/// The default subvolume in the item that names it, which may hold other entries of the same hash;
/// the top level if there is none.
pub fn default_subvolume_in(item: &[u8]) -> Result<u64, FormatError> {
    for entry in DirEntries::new(item) {
        let entry = entry?;
        if entry.name == b"default" {
            return Ok(entry.header.location.get().objectid);
        }
    }
    Ok(objectid::FS_TREE)
}
