//! What all handles of one open file system share.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use larder_btree::{BlockCache, Readahead, Tree, TreeRoot, TreeView};
use larder_format::item::RootItem;
use larder_format::{ItemType, Key, objectid};
use larder_jobs::Jobs;
use larder_volume::Volume;

use crate::cache::decompressed::DecompressedExtents;
use crate::core::balances::Balances;
use crate::core::scrubs::Scrubs;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::item::subvolume_info::SubvolumeName;
use crate::settings::policy::WritePolicy;

/// An open file system, below its handles: in the state of its last commit or, open for writing, in
/// the current state.
pub(crate) struct Core {
    volume: Arc<Volume>,
    cache: Arc<BlockCache>,
    root_tree: TreeView,
    /// None if its root is gone and readers do without checksums.
    csum_tree: Option<TreeView>,
    decompressed: DecompressedExtents,
    jobs: Jobs,
    scrubs: Scrubs,
    balances: Balances,
    /// The writer, if it is open for writing.
    writer: Option<Writer>,
}

impl Core {
    /// The file system on `volume` as its last commit left it.
    pub(crate) fn committed(volume: Arc<Volume>, cache: Arc<BlockCache>) -> Result<Self> {
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
        Self::of_state(volume, cache, root_tree)
    }

    /// The file system on `volume` in the state that has this root tree.
    pub(crate) fn of_state(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        root_tree: Tree,
    ) -> Result<Self> {
        let root_tree = TreeView::Committed(root_tree);
        let csum_tree = match open_tree(&cache, &root_tree, objectid::CSUM_TREE) {
            Err(_) if volume.rescue().ignore_bad_roots => None,
            tree => Some(TreeView::Committed(tree?)),
        };
        Ok(Self::new(volume, cache, root_tree, csum_tree, None))
    }

    /// The file system on `volume` as `writer` changes it.
    pub(crate) fn writable(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        writer: Writer,
    ) -> Result<Self> {
        let root_tree = TreeView::Live(writer.manager().trees().root().clone());
        let csum_tree = Some(writer.tree(objectid::CSUM_TREE)?);
        Ok(Self::new(volume, cache, root_tree, csum_tree, Some(writer)))
    }

    fn new(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        root_tree: TreeView,
        csum_tree: Option<TreeView>,
        writer: Option<Writer>,
    ) -> Self {
        let (decompressed, jobs, scrubs, balances) = Default::default();
        Self { volume, cache, root_tree, csum_tree, decompressed, jobs, scrubs, balances, writer }
    }

    /// The volume that it is on.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The tree of tree roots.
    pub(crate) fn root_tree(&self) -> &TreeView {
        &self.root_tree
    }

    pub(crate) fn csum_tree(&self) -> Result<&TreeView> {
        let key = Key::new(objectid::CSUM_TREE, ItemType::ROOT_ITEM, 0);
        let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
        self.csum_tree.as_ref().ok_or(missing)
    }

    pub(crate) fn decompressed(&self) -> &DecompressedExtents {
        &self.decompressed
    }

    /// Long work that goes on.
    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The counters of scrubs that go on.
    pub(crate) fn scrubs(&self) -> &Scrubs {
        &self.scrubs
    }

    /// The balance that goes on.
    pub(crate) fn balances(&self) -> &Balances {
        &self.balances
    }

    /// Calls `read`, which searches for content and then reads it: again if content moved
    /// meanwhile, since other content may have come to where it was.
    pub(crate) fn while_content_stays<T>(&self, mut read: impl FnMut() -> T) -> T {
        let moves = || self.writer.as_ref().map_or(0, |writer| writer.moves.load(Acquire));
        loop {
            let before = moves();
            let outcome = read();
            if moves() == before {
                return outcome;
            }
        }
    }

    pub(crate) fn sectorsize(&self) -> u64 {
        u64::from(self.volume.sectorsize())
    }

    /// The writer; none if the file system is open for reading.
    pub(crate) fn try_writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// The writer.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.try_writer().ok_or(Error::NotWritable)
    }

    /// The tree with this id. It must be neither that of a subvolume nor the tree of tree roots.
    pub(crate) fn tree(&self, id: u64) -> Result<TreeView> {
        match &self.writer {
            Some(writer) => writer.tree(id),
            None if id == objectid::CHUNK_TREE => {
                let root = TreeRoot::of_chunk_tree(&self.volume.superblock());
                Ok(TreeView::Committed(Tree::new(self.cache.clone(), root)))
            }
            None => open_tree(&self.cache, &self.root_tree, id).map(TreeView::Committed),
        }
    }

    /// The root item of the tree `id` and its key.
    pub(crate) fn root_item(&self, id: u64) -> Result<Option<(Key, Box<RootItem>)>> {
        if let Some(writer) = &self.writer
            && let Some((key, item)) = writer.manager().trees().root_item(id)
        {
            return Ok(Some((key, Box::new(item))));
        }
        find_root_item(&self.root_tree, id)
    }

    /// The root item of a tree in the running transaction, if the tree is open. Its generation is
    /// that of the last change.
    pub(crate) fn live_root_item(&self, id: u64) -> Option<RootItem> {
        let manager = self.try_writer()?.manager();
        let (_, mut item) = manager.trees().root_item(id)?;
        let root = manager.trees().forest().tree(id)?.root();
        if root.generation > item.generation.get() {
            item.generation = root.generation.into();
            item.generation_v2 = root.generation.into();
            item.ctransid = root.generation.into();
        }
        Some(item)
    }

    /// How files are written that have no flags or properties for it.
    pub(crate) fn write_policy(&self) -> WritePolicy {
        self.try_writer().map_or_else(WritePolicy::default, |writer| *writer.policy.read())
    }

    /// Files up to this size, in bytes, are inline.
    pub(crate) fn most_inline_bytes(&self) -> u64 {
        self.write_policy().max_inline_bytes.min(self.sectorsize() - 1)
    }

    /// The name of the subvolume `id`, from its `ROOT_BACKREF`.
    pub(crate) fn subvolume_name(&self, id: u64) -> Result<Option<SubvolumeName>> {
        let backref = |parent| Key::new(id, ItemType::ROOT_BACKREF, parent);
        let mut range = self.root_tree().range(backref(0)..=backref(u64::MAX), Readahead::None);
        match range.next_item()? {
            Some((key, bytes)) => SubvolumeName::parse(key, bytes)
                .map(Some)
                .map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem)),
            None => Ok(None),
        }
    }
}

fn open_tree(cache: &Arc<BlockCache>, root_tree: &TreeView, id: u64) -> Result<Tree> {
    let key = Key::new(id, ItemType::ROOT_ITEM, 0);
    let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
    let (_, item) = find_root_item(root_tree, id)?.ok_or(missing)?;
    Ok(Tree::new(cache.clone(), TreeRoot::of_item(id, &item)))
}

/// The root item of the tree `id` and its key, whose offset is found by searching.
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
