//! The file system: a volume and the roots of its trees.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot, TreeView};
use larder_format::item::{DirEntries, RootItem};
use larder_format::{FormatError, ItemType, Key, Superblock, name_hash, objectid};
use larder_transaction::{Aborted, BackgroundCommits};
use larder_volume::Volume;
use parking_lot::Mutex;

use crate::core::writer::{LiveSubvolume, Writer};
use crate::error::{Error, Result};
use crate::file::decompress::DecompressedExtents;
use crate::subvolume::handle::{Subvolume, SubvolumeState};

/// A file system: as its last commit left it, or, open for writing, as it is now. Cloning it is cheap,
/// and all threads may use it.
#[derive(Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
    /// In the handles that callers have, not in those that a commit makes for itself: the thread ends
    /// with the last of them.
    background: Option<Arc<BackgroundCommits>>,
}

pub(crate) struct Shared {
    volume: Arc<Volume>,
    cache: Arc<BlockCache>,
    root_tree: TreeView,
    csum_tree: TreeView,
    decompressed: DecompressedExtents,
    /// The subvolumes that somebody holds: one state for each, whoever opens it.
    subvolumes: Mutex<HashMap<u64, Weak<SubvolumeState>>>,
    /// What changes it, if it is open for writing.
    writer: Option<Writer>,
}

impl Filesystem {
    /// Opens the file system on `volume` for reading, keeping at most `cache_bytes` of tree blocks in
    /// memory.
    pub fn open(volume: Arc<Volume>, cache_bytes: usize) -> Result<Self> {
        let cache = Arc::new(BlockCache::new(volume.clone(), cache_bytes));
        let superblock = volume.superblock();
        let root_tree = Tree::new(
            cache.clone(),
            TreeRoot {
                tree: objectid::ROOT_TREE,
                logical: superblock.root(),
                level: superblock.root_level,
                generation: superblock.generation.get(),
            },
        );
        let root_tree = TreeView::Committed(root_tree);
        let csum_tree = TreeView::Committed(open_tree(&cache, &root_tree, objectid::CSUM_TREE)?);
        Ok(Self::assemble(volume, cache, root_tree, csum_tree, None))
    }

    /// Opens the file system on `volume`, which is open for writing, for writing.
    pub(crate) fn with_writer(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        writer: Writer,
    ) -> Result<Self> {
        let root_tree = TreeView::Live(writer.manager().root_tree().clone());
        let csum_tree = writer.tree(objectid::CSUM_TREE)?;
        Ok(Self::assemble(volume, cache, root_tree, csum_tree, Some(writer)))
    }

    fn assemble(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        root_tree: TreeView,
        csum_tree: TreeView,
        writer: Option<Writer>,
    ) -> Self {
        let decompressed = DecompressedExtents::default();
        let subvolumes = Mutex::default();
        let shared =
            Shared { volume, cache, root_tree, csum_tree, decompressed, subvolumes, writer };
        Self { shared: Arc::new(shared), background: None }
    }

    /// The volume that it lies on.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.shared.volume
    }

    /// The superblock as it was when the file system was opened.
    pub fn superblock(&self) -> &Superblock {
        self.shared.volume.superblock()
    }

    /// Whether a crash left log trees: what was synced file by file since the last commit is in them
    /// only. They are replayed when opening for writing; when opening for reading they are not, and what
    /// they hold is not seen.
    pub fn needs_log_replay(&self) -> bool {
        self.shared.writer.is_none() && self.superblock().log_root.get() != 0
    }

    /// The tree of tree roots.
    pub fn root_tree(&self) -> &TreeView {
        &self.shared.root_tree
    }

    /// The tree with this id, which is neither that of a subvolume nor the tree of tree roots.
    pub fn tree(&self, id: u64) -> Result<TreeView> {
        match &self.shared.writer {
            Some(writer) => writer.tree(id),
            None if id == objectid::CHUNK_TREE => {
                let root = TreeRoot::of_chunk_tree(self.superblock());
                Ok(TreeView::Committed(Tree::new(self.cache().clone(), root)))
            }
            None => open_tree(self.cache(), self.root_tree(), id).map(TreeView::Committed),
        }
    }

    /// The transaction of the last commit.
    pub fn generation(&self) -> u64 {
        match self.try_writer() {
            Some(writer) => writer.manager().durable_generation(),
            None => self.superblock().generation.get(),
        }
    }

    /// When the last commit was made, if it was since the file system was opened.
    pub fn committed_at(&self) -> Option<SystemTime> {
        self.try_writer()?.manager().committed_at()
    }

    /// Why and since when it is read-only, if an error made it so.
    pub fn aborted(&self) -> Option<&Aborted> {
        self.try_writer()?.manager().aborted()
    }

    /// The subvolume with this id. One that was deleted is not found, even while it is in use.
    pub fn subvolume(&self, id: u64) -> Result<Subvolume> {
        let missing = Error::NoSuchSubvolume(id);
        let known = self.shared.subvolumes.lock().get(&id).and_then(Weak::upgrade);
        if let Some(state) = known {
            let found = Subvolume::from(state);
            let is_deleted = found.try_live().is_some_and(LiveSubvolume::is_deleted);
            return if is_deleted { Err(missing) } else { Ok(found) };
        }
        if !objectid::is_subvolume(id) {
            return Err(Error::NoSuchSubvolume(id));
        }
        let live =
            self.shared.writer.as_ref().map(|writer| writer.open_subvolume(id)).transpose()?;
        let (key, item) = self
            .root_item(id)?
            .filter(|(_, item)| item.refs.get() > 0)
            .ok_or(Error::NoSuchSubvolume(id))?;
        let tree = Tree::new(self.shared.cache.clone(), tree_root(id, &item));
        let state = Arc::new(SubvolumeState::new(self.clone(), tree, live, item, key.offset));
        let found = self.remember(id, state);
        // Asked again, now that a thread that deletes it finds this state: it may be deleted since.
        if let Some(writer) = self.try_writer()
            && writer.manager().root_item(id).is_none_or(|(_, item)| item.refs.get() == 0)
        {
            return Err(missing);
        }
        Ok(found.into())
    }

    /// The one state of a subvolume: this, unless another thread was faster.
    fn remember(&self, id: u64, state: Arc<SubvolumeState>) -> Arc<SubvolumeState> {
        let mut open = self.shared.subvolumes.lock();
        if let Some(known) = open.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        if open.len() == open.capacity() {
            open.retain(|_, state| state.strong_count() > 0);
        }
        open.insert(id, Arc::downgrade(&state));
        state
    }

    /// The subvolume that is mounted when none is asked for.
    pub fn default_subvolume(&self) -> Result<Subvolume> {
        self.subvolume(self.default_subvolume_id()?)
    }

    /// Id of the default subvolume: what the "default" entry of the root tree's directory points to.
    pub fn default_subvolume_id(&self) -> Result<u64> {
        let directory = self.superblock().root_dir_objectid.get();
        let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(b"default"));
        let Some(item) = self.root_tree().get(key)? else { return Ok(objectid::FS_TREE) };
        default_subvolume_in(&item)
            .map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem))
    }

    /// The root item of the tree `id` and its key.
    pub(crate) fn root_item(&self, id: u64) -> Result<Option<(Key, Box<RootItem>)>> {
        if let Some(writer) = &self.shared.writer
            && let Some((key, item)) = writer.manager().root_item(id)
        {
            return Ok(Some((key, Box::new(item))));
        }
        find_root_item(self.root_tree(), id)
    }

    /// The root item of a tree in the running transaction, if the tree is open: its generation is that of
    /// the last change.
    pub(crate) fn live_root_item(&self, id: u64) -> Option<RootItem> {
        let manager = self.try_writer()?.manager();
        let (_, mut item) = manager.root_item(id)?;
        let root = manager.forest().tree(id)?.root();
        if root.generation > item.generation.get() {
            item.generation = root.generation.into();
            item.generation_v2 = root.generation.into();
            item.ctransid = root.generation.into();
        }
        Some(item)
    }

    /// The label, up to 255 bytes; empty if there is none.
    pub fn label(&self) -> Vec<u8> {
        match self.try_writer() {
            Some(writer) => writer.manager().superblock().label().to_vec(),
            None => self.superblock().label().to_vec(),
        }
    }

    /// Has it commit in the background as long as a caller has a handle.
    pub(crate) fn committing(self, background: BackgroundCommits) -> Self {
        Self { background: Some(Arc::new(background)), ..self }
    }

    /// Changes the interval of commits in the background, if there are any; it begins anew.
    pub fn set_commit_interval(&self, interval: Duration) {
        if let Some(background) = &self.background {
            background.set_interval(interval);
        }
    }

    /// Whether devices are told what space is needed no more, after each commit: not, unless set. Fails in a
    /// file system that is open for reading.
    pub fn set_discards(&self, discards: bool) -> Result<()> {
        self.writer()?.manager().set_discards(discards);
        Ok(())
    }

    /// Bytes that extents use on all block groups together.
    pub fn used_bytes(&self) -> u64 {
        match self.try_writer() {
            Some(writer) => writer.manager().space().bytes_used(),
            None => self.superblock().bytes_used.get(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What changes the file system; none if it is open for reading.
    pub(crate) fn try_writer(&self) -> Option<&Writer> {
        self.shared.writer.as_ref()
    }

    pub(crate) fn csum_tree(&self) -> &TreeView {
        &self.shared.csum_tree
    }

    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.shared.cache
    }

    pub(crate) fn decompressed(&self) -> &DecompressedExtents {
        &self.shared.decompressed
    }

    pub(crate) fn sectorsize(&self) -> u64 {
        u64::from(self.shared.volume.sectorsize())
    }
}

impl From<Arc<Shared>> for Filesystem {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared, background: None }
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

/// The default subvolume by the item that names it, which may hold other entries of the same hash; the top
/// level if it does not.
pub fn default_subvolume_in(item: &[u8]) -> Result<u64, FormatError> {
    for entry in DirEntries::new(item) {
        let entry = entry?;
        if entry.name == b"default" {
            return Ok(entry.header.location.get().objectid);
        }
    }
    Ok(objectid::FS_TREE)
}

fn open_tree(cache: &Arc<BlockCache>, root_tree: &TreeView, id: u64) -> Result<Tree> {
    let key = Key::new(id, ItemType::ROOT_ITEM, 0);
    let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
    let (_, item) = find_root_item(root_tree, id)?.ok_or(missing)?;
    Ok(Tree::new(cache.clone(), tree_root(id, &item)))
}

fn tree_root(id: u64, item: &RootItem) -> TreeRoot {
    TreeRoot {
        tree: id,
        logical: item.bytenr(),
        level: item.level,
        generation: item.generation.get(),
    }
}

/// The root item of the tree `id` and its key, whose offset is not known beforehand.
fn find_root_item(root_tree: &TreeView, id: u64) -> Result<Option<(Key, Box<RootItem>)>> {
    let mut cursor = root_tree.cursor(Readahead::None);
    if !cursor.seek_last(Key::new(id, ItemType::ROOT_ITEM, u64::MAX))? {
        return Ok(None);
    }
    match cursor.item() {
        Some((key, bytes)) if (key.objectid, key.item_type) == (id, ItemType::ROOT_ITEM) => {
            let item = RootItem::parse(bytes)
                .map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem))?;
            Ok(Some((key, Box::new(item))))
        }
        _ => Ok(None),
    }
}
