//! The handle of a subvolume.

use std::fmt;
use std::sync::Arc;

use larder_btree::{Tree, TreeView};
use larder_format::item::RootItem;
use larder_format::{Key, objectid};

use crate::core::writer::LiveSubvolume;
use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::inode::handle::Inode;
use crate::subvolume::info::SubvolumeName;

/// A subvolume or snapshot. Cloning it is cheap.
#[derive(Clone)]
pub struct Subvolume {
    pub(super) state: Arc<SubvolumeState>,
}

/// What all handles of one subvolume share.
pub(crate) struct SubvolumeState {
    filesystem: Filesystem,
    tree: Tree,
    view: TreeView,
    /// What is needed to change it, if the file system is open for writing.
    live: Option<LiveSubvolume>,
    item: Box<RootItem>,
    /// Offset of the root item's key: the transaction that took the snapshot, 0 for no snapshot.
    pub(super) snapshot_generation: u64,
}

impl SubvolumeState {
    pub(crate) fn new(
        filesystem: Filesystem,
        tree: Tree,
        live: Option<LiveSubvolume>,
        item: Box<RootItem>,
        snapshot_generation: u64,
    ) -> Self {
        let view = match &live {
            Some(live) => TreeView::Live(live.tree().clone()),
            None => TreeView::Committed(tree.clone()),
        };
        Self { filesystem, tree, view, live, item, snapshot_generation }
    }
}

impl Drop for SubvolumeState {
    fn drop(&mut self) {
        if self.live.as_ref().is_some_and(LiveSubvolume::is_deleted)
            && let Some(writer) = self.filesystem.try_writer()
        {
            writer.subvolume_is_unused(self.tree.root().tree);
        }
    }
}

impl From<Arc<SubvolumeState>> for Subvolume {
    fn from(state: Arc<SubvolumeState>) -> Self {
        Self { state }
    }
}

impl Subvolume {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.tree().root().tree
    }

    /// The file system that it belongs to.
    pub fn filesystem(&self) -> &Filesystem {
        &self.state.filesystem
    }

    /// Its tree as it was committed when the subvolume was opened. In a file system that is open for
    /// writing it is that of a state gone by, unless the subvolume is read-only.
    pub fn tree(&self) -> &Tree {
        &self.state.tree
    }

    /// Its tree as it is now.
    pub(crate) fn view(&self) -> &TreeView {
        &self.state.view
    }

    /// What is needed to change it; none if the file system is open for reading.
    pub(crate) fn try_live(&self) -> Option<&LiveSubvolume> {
        self.state.live.as_ref()
    }

    /// The transaction that made it; 0 for the top level, which was always there.
    pub fn creation_generation(&self) -> u64 {
        self.state.item.otransid.get()
    }

    /// Its root item.
    pub fn root_item(&self) -> RootItem {
        self.filesystem().live_root_item(self.id()).unwrap_or(*self.state.item)
    }

    /// Its root directory.
    pub fn root(&self) -> Result<Inode> {
        self.inode(objectid::FIRST_FREE)
    }

    /// The root directory of the subvolume `id` as the entry `name` of `directory` shows it, at
    /// `index` if that is known: `None` if that subvolume is not named there, which is so in
    /// snapshots of what holds it, or is no more.
    pub(crate) fn nested(
        &self,
        id: u64,
        directory: u64,
        name: &[u8],
        index: Option<u64>,
    ) -> Result<Option<Inode>> {
        let is_its = |its: SubvolumeName| {
            (its.parent, its.directory, &*its.name) == (self.id(), directory, name)
                && index.is_none_or(|index| index == its.index)
        };
        let is_named_here =
            id != objectid::FS_TREE && self.filesystem().subvolume_name(id)?.is_some_and(is_its);
        if !is_named_here {
            return Ok(None);
        }
        match self.filesystem().subvolume(id) {
            Ok(subvolume) => subvolume.root().map(Some),
            Err(Error::NoSuchSubvolume(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An error about one of its items.
    pub(crate) fn bad_item(
        &self,
        key: Key,
        problem: impl Into<larder_format::FormatError>,
    ) -> Error {
        Error::item(self.id(), key, problem)
    }
}

impl PartialEq for Subvolume {
    /// Whether both are the same subvolume of the same file system.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Subvolume {}

impl fmt::Debug for Subvolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subvolume").field("id", &self.id()).finish_non_exhaustive()
    }
}
