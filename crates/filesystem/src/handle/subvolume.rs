//! The handle of a subvolume.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use larder_btree::{Readahead, Tree, TreeView};
use larder_format::item::{InodeRefs, RootItem};
use larder_format::{FormatError, ItemType, Key};
use larder_platform::OsStrExt;

use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;
use crate::item::links::Link;
use crate::item::relative::Relative;
use crate::item::subvolume_info::{SubvolumeInfo, SubvolumeName};
use crate::live::subvolume::LiveSubvolume;

/// A subvolume or snapshot: a tree of files. Cloning it is cheap.
///
/// Paths start at its root, with or without a slash; they lead on into nested subvolumes, and `..`
/// does not lead out of it.
#[derive(Clone)]
pub struct Subvolume {
    pub(crate) state: Arc<SubvolumeState>,
}

/// What all handles of one subvolume share.
pub(crate) struct SubvolumeState {
    filesystem: Filesystem,
    tree: Tree,
    view: TreeView,
    /// The live subvolume, if the file system is open for writing.
    live: Option<Arc<LiveSubvolume>>,
    item: Box<RootItem>,
    /// Offset of the root item's key: the transaction that took the snapshot, 0 for other
    /// subvolumes.
    pub(crate) snapshot_generation: u64,
}

impl SubvolumeState {
    pub(crate) fn new(
        filesystem: Filesystem,
        tree: Tree,
        live: Option<Arc<LiveSubvolume>>,
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
        if self.live.as_ref().is_some_and(|live| live.is_deleted())
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

    /// Its tree as it was committed when the subvolume was opened. In a file system that is open
    /// for writing this is an old state, unless the subvolume is read-only.
    #[doc(hidden)]
    pub fn tree(&self) -> &Tree {
        &self.state.tree
    }

    /// Its tree in its current state.
    pub(crate) fn view(&self) -> &TreeView {
        &self.state.view
    }

    /// The live subvolume, to keep; none if the file system is open for reading.
    pub(crate) fn shared_live(&self) -> Result<Arc<LiveSubvolume>> {
        self.state.live.clone().ok_or(Error::NotWritable)
    }

    /// The live subvolume; none if the file system is open for reading.
    pub(crate) fn try_live(&self) -> Option<&LiveSubvolume> {
        self.state.live.as_deref()
    }

    pub(crate) fn live(&self) -> Result<&LiveSubvolume> {
        self.try_live().ok_or(Error::NotWritable)
    }

    /// The transaction that created it; 0 for the top level, which always existed. Id and
    /// generation together identify a subvolume: an id alone may have belonged to one that was
    /// deleted before the file system was opened.
    pub fn creation_generation(&self) -> u64 {
        self.state.item.otransid.get()
    }

    /// Its root item.
    #[doc(hidden)]
    pub fn root_item(&self) -> RootItem {
        self.filesystem().core().live_root_item(self.id()).unwrap_or(*self.state.item)
    }

    /// Its UUID, generations, times and name.
    pub fn info(&self) -> Result<SubvolumeInfo> {
        let state = &self.state;
        let name = self.name()?;
        Ok(SubvolumeInfo::new(self.id(), &self.root_item(), state.snapshot_generation, name))
    }

    /// The one among several snapshots that probably differs least from this: a snapshot of the
    /// same subvolume, or one of the two of the other, last changed before this one, or otherwise
    /// soonest after it.
    pub fn closest_relative<'a>(&self, others: &'a [Self]) -> Result<Option<&'a Self>> {
        let own = Relative::of(&self.info()?);
        let infos = others.iter().map(|other| Ok((Relative::of(&other.info()?), other)));
        Ok(own.closest(infos.collect::<Result<Vec<_>>>()?))
    }

    /// Its name; `None` for the top level.
    pub(crate) fn name(&self) -> Result<Option<SubvolumeName>> {
        self.filesystem().core().subvolume_name(self.id())
    }

    /// The name of the directory `inode`, with the key of its item. While the name changes, it is
    /// the one before or the one after.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed; `EUCLEAN` if it has no name.
    pub(crate) fn directory_link(&self, inode: u64) -> Result<(Key, Link)> {
        match self.settled_link(inode) {
            Err(missing @ Error::MissingItem { .. }) => match self.inode(inode)?.try_live_inode() {
                Some(live) => live.while_locked(|| self.settled_link(inode)),
                None => Err(missing),
            },
            found => found,
        }
    }

    /// The same while no thread changes the name: the caller has locked the directory.
    pub(crate) fn settled_link(&self, inode: u64) -> Result<(Key, Link)> {
        let key = |parent| Key::new(inode, ItemType::INODE_REF, parent);
        let mut items = self.view().range(key(0)..=key(u64::MAX), Readahead::None);
        let missing = Error::MissingItem { tree: self.id(), key: key(0) };
        let (key, bytes) = items.next_item()?.ok_or(missing)?;
        let link = InodeRefs::new(bytes)
            .next()
            .unwrap_or_else(|| Err(FormatError::invalid("inode reference", "it is empty")))
            .map_err(|problem| self.bad_item(key, problem))?;
        let (index, name) = (link.index, OsStr::from_bytes(link.name).to_owned());
        Ok((key, Link { parent: key.offset, index, name }))
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
