//! From trees and addresses to files: items of any tree, and the files that refer to data.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use larder_btree::{Problem, Readahead, TreeError};
use larder_format::item::{BackRef, FileExtent, MAX_COMPRESSED_EXTENT_BYTES};
use larder_format::objectid::{self, is_subvolume};
use larder_format::{FormatError, ItemType, Key, Logical, Node};
use larder_transaction::extent::{BackReferences, FoundExtent, extent_at};
use larder_volume::BlockExpectation;

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::filesystem::tree_items::TreeItems;
use crate::subvolume::handle::Subvolume;

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

/// File extents of one inode that may refer to an extent: those that begin in a range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) inode: u64,
    first: u64,
    last: u64,
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
    /// with `of_whole_extent` to any data of its extent. In a file system that is open for writing
    /// this commits first.
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no extent,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is a tree block.
    pub fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>> {
        // An extent is referred to by leaves, which several subvolumes may share: each leaf names
        // inodes, and each subvolume is searched for those.
        if self.try_writer().is_some() {
            self.sync()?;
        }
        let extent = self.data_extent(Logical(logical))?;
        let at = (!of_whole_extent).then(|| logical - extent.range.start);
        let wanted = SoughtExtent { start: extent.range.start, at };
        let mut candidates = BTreeSet::new();
        for back_ref in self.references_to(&extent)? {
            match back_ref? {
                BackRef::Data { objectid, offset, .. } => {
                    candidates.insert(Candidate::near(&extent, objectid, offset));
                }
                BackRef::SharedData { parent, .. } => {
                    candidates.extend(self.candidates_in(Logical(parent), &wanted)?);
                }
                _ => {}
            }
        }
        let mut places = BTreeSet::new();
        for info in self.subvolumes() {
            let info = info?;
            if info.is_being_deleted {
                continue;
            }
            let subvolume = self.subvolume_by_id(info.id)?;
            for candidate in &candidates {
                for place in own_extents(&subvolume, *candidate, &wanted) {
                    let (offset, _) = place?;
                    let (subvolume, inode) = (subvolume.id(), candidate.inode);
                    places.insert(FilePlace { subvolume, inode, offset });
                }
            }
        }
        Ok(places.into_iter().collect())
    }

    /// The data extent that contains `logical`.
    pub(super) fn data_extent(&self, logical: Logical) -> Result<FoundExtent> {
        let tree = self.tree(objectid::EXTENT_TREE)?;
        let extent = extent_at(&tree, self.volume().nodesize(), logical)?;
        match extent.ok_or(Error::NotFound)? {
            extent if extent.is_tree_block => Err(Error::Invalid("there is a tree block")),
            extent => Ok(extent),
        }
    }

    /// What refers to an extent.
    pub(super) fn references_to(&self, extent: &FoundExtent) -> Result<BackReferences> {
        Ok(extent.references(&self.tree(objectid::EXTENT_TREE)?))
    }

    /// The file extents in the leaf at `leaf` that refer to the extent.
    pub(super) fn candidates_in(
        &self,
        leaf: Logical,
        wanted: &SoughtExtent,
    ) -> Result<Vec<Candidate>> {
        let mut bytes = vec![0; self.volume().nodesize() as usize];
        let expectation = BlockExpectation { level: Some(0), ..BlockExpectation::default() };
        let unreadable = |error| TreeError {
            tree: objectid::EXTENT_TREE,
            logical: leaf,
            level: 0,
            key: None,
            upper: None,
            problem: Box::new(Problem::Read(Box::new(error))),
        };
        let read = self.volume().read_tree_block(leaf, &expectation, &mut bytes);
        read.map_err(unreadable)?;
        let node = Node::from_checked(&bytes);
        let owner = node.header().owner.get();
        let mut candidates = Vec::new();
        for slot in 0..node.nritems() {
            let key = node.key(slot);
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let places = wanted.places_in(key, node.item_data(slot));
            if places.map_err(|problem| Error::item(owner, key, problem))?.is_some() {
                let (inode, offset) = (key.objectid, key.offset);
                candidates.push(Candidate { inode, first: offset, last: offset });
            }
        }
        Ok(candidates)
    }
}

/// The file extents of this subvolume that refer to the data, for one candidate: the offset of the
/// data in the file, and the offset at which the whole extent would begin, which wraps around.
pub(super) fn own_extents<'a>(
    subvolume: &'a Subvolume,
    candidate: Candidate,
    wanted: &'a SoughtExtent,
) -> impl Iterator<Item = Result<(u64, u64)>> + 'a {
    let key = |offset| Key::new(candidate.inode, ItemType::EXTENT_DATA, offset);
    let range = key(candidate.first)..=key(candidate.last);
    let mut items = subvolume.view().range(range, Readahead::Forward);
    std::iter::from_fn(move || {
        loop {
            let (key, bytes) = match items.next_item() {
                Err(error) => return Some(Err(error.into())),
                Ok(item) => item?,
            };
            match wanted.places_in(key, bytes) {
                Err(problem) => return Some(Err(subvolume.bad_item(key, problem))),
                Ok(Some(places)) => return Some(Ok(places)),
                Ok(None) => {}
            }
        }
    })
}

impl Candidate {
    /// File extents that refer to `extent`, whose offset in the file minus that in the extent is
    /// `origin`, which wraps around.
    pub(super) fn near(extent: &FoundExtent, inode: u64, origin: u64) -> Self {
        // The data of a compressed extent may be longer.
        let len_bytes = extent.range.end - extent.range.start;
        let len_bytes = len_bytes.max(MAX_COMPRESSED_EXTENT_BYTES);
        match origin.checked_add(len_bytes) {
            Some(last) => Self { inode, first: origin, last },
            None => Self { inode, first: 0, last: origin.wrapping_add(len_bytes) },
        }
    }
}

impl SoughtExtent {
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
