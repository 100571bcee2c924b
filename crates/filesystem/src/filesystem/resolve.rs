//! From trees and addresses to files: items of any tree, and the files that refer to data.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

use larder_btree::{Block, Readahead, Tree, TreeView};
use larder_format::item::FileExtent;
use larder_format::objectid::{self, is_subvolume};
use larder_format::{FormatError, ItemType, Key, Logical};
use larder_transaction::extent::{Backrefs, FoundExtent};

use crate::error::{Error, Result};
use crate::filesystem::tree_items::TreeItems;
use crate::handle::filesystem::Filesystem;
use crate::writeback::delayed::flush_delayed;
use crate::writeback::flush::flush_all;
use crate::writeback::orphan_deletion::delete_orphans;

/// A reference from a file to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The subvolume.
    pub subvolume: u64,
    /// The inode in it.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// A file extent of a leaf, whichever subvolumes have the leaf.
pub(super) struct PlaceInLeaf {
    pub(super) inode: u64,
    /// The offset in the file of the data that is searched for.
    offset: u64,
    /// The one at which the whole extent would begin, which wraps around.
    pub(super) origin: u64,
}

/// The data extent that is searched for.
pub(super) struct SoughtExtent {
    pub(super) start: u64,
    /// The offset in it; `None` for any part of it.
    pub(super) at: Option<u64>,
}

impl Filesystem {
    /// The items of the tree with this id whose keys lie in `range`, as they are stored. Items that
    /// only commits write, such as roots of trees, are those of the last commit.
    pub fn tree_items(&self, tree: u64, range: RangeInclusive<Key>) -> Result<TreeItems> {
        self.flush_delayed()?;
        let view = match tree {
            objectid::ROOT_TREE => self.root_tree().clone(),
            _ if is_subvolume(tree) => self.subvolume_by_id(tree)?.view().clone(),
            _ => self.tree(tree).map_err(|error| match error {
                Error::MissingItem { tree: objectid::ROOT_TREE, .. } => Error::NotFound,
                error => error,
            })?,
        };
        Ok(TreeItems { inner: view.range(range, Readahead::Forward) })
    }

    /// The places in files that refer to the data at the logical address `logical`, in bytes, or
    /// with `of_whole_extent` to any data of its extent.
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no extent,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is a tree block.
    pub fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>> {
        self.with_backrefs(|backrefs| {
            let extent = data_extent(backrefs, Logical(logical))?;
            let at = (!of_whole_extent).then(|| logical - extent.range.start);
            places_in(backrefs, &extent, &SoughtExtent { start: extent.range.start, at })
        })
    }

    /// Calls `look` with what refers to extents now, while no thread changes it.
    pub(crate) fn with_backrefs<T>(
        &self,
        look: impl FnOnce(&Backrefs<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(writer) = self.try_writer() else {
            return look(&Backrefs::committed(self.committed_root_tree()?)?);
        };
        // Dirty data has no address yet, and delayed items are in no tree.
        flush_all(self.core())?;
        delete_orphans(writer);
        flush_delayed(writer)?;
        let exclusive = writer.manager().quiesce();
        look(&exclusive.backrefs())
    }

    /// The tree of tree roots, if the file system is open for reading.
    pub(super) fn committed_root_tree(&self) -> Result<Tree> {
        match self.root_tree() {
            TreeView::Committed(tree) => Ok(tree.clone()),
            TreeView::Live(_) => Err(Error::Invalid("the file system is open for writing")),
        }
    }
}

/// The data extent that contains `logical`.
pub(super) fn data_extent(backrefs: &Backrefs<'_>, logical: Logical) -> Result<FoundExtent> {
    match backrefs.extent_at(logical)?.ok_or(Error::NotFound)? {
        extent if extent.is_tree_block => Err(Error::Invalid("there is a tree block")),
        extent => Ok(extent),
    }
}

pub(super) fn places_in(
    backrefs: &Backrefs<'_>,
    extent: &FoundExtent,
    wanted: &SoughtExtent,
) -> Result<Vec<FilePlace>> {
    let mut places = BTreeSet::new();
    let mut leaves = HashSet::new();
    let mut referrers = backrefs.referrers(extent)?.peekable();
    // Its last reference went in the running transaction.
    referrers.peek().ok_or(Error::NotFound)?;
    for referrer in referrers {
        for leaf in backrefs.leaves(extent, referrer?)? {
            let leaf = leaf?;
            if !leaves.insert(leaf.logical()) {
                continue;
            }
            let found: Vec<_> = wanted.places_in_leaf(&leaf).collect::<Result<_>>()?;
            backrefs.any_tree(&leaf, &mut |subvolume| {
                let place =
                    |at: &PlaceInLeaf| FilePlace { subvolume, inode: at.inode, offset: at.offset };
                places.extend(found.iter().map(place));
                false
            })?;
        }
    }
    Ok(places.into_iter().collect())
}

impl SoughtExtent {
    /// The file extents of a leaf that have the data.
    pub(super) fn places_in_leaf(&self, leaf: &Block) -> impl Iterator<Item = Result<PlaceInLeaf>> {
        let (tree, node) = (leaf.header().owner.get(), leaf.node());
        let extents = (0..node.nritems()).map(move |slot| (node.key(slot), slot));
        let extents = extents.filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA);
        extents.filter_map(move |(key, slot)| {
            let places = self.places_in(key, node.item_data(slot));
            let places = places.map_err(|problem| Error::item(tree, key, problem)).transpose()?;
            let inode = key.objectid;
            Some(places.map(|(offset, origin)| PlaceInLeaf { inode, offset, origin }))
        })
    }

    /// The offset in the file of the data that is searched for, if a file extent has it, and the one
    /// at which the whole extent would begin.
    fn places_in(&self, key: Key, bytes: &[u8]) -> Result<Option<(u64, u64)>, FormatError> {
        let FileExtent::Regular { header, extent, .. } = FileExtent::parse(bytes)? else {
            return Ok(None);
        };
        if extent.disk_bytenr.get() != self.start {
            return Ok(None);
        }
        let (first, len) = (extent.offset.get(), extent.num_bytes.get());
        let origin = key.offset.wrapping_sub(first);
        match self.at {
            // The bytes of compressed data have no addresses of their own.
            Some(at) if header.compression == 0 => {
                let behind = at.checked_sub(first).filter(|behind| *behind < len);
                let offset = behind.and_then(|behind| key.offset.checked_add(behind));
                Ok(offset.map(|offset| (offset, origin)))
            }
            _ => Ok(Some((key.offset, origin))),
        }
    }
}
