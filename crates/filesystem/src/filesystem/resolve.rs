//! From trees and addresses to files: items of any tree, and the files that refer to data.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, RangeInclusive};

use larder_btree::{Problem, Readahead, TreeError};
use larder_format::item::{
    BackRef, Extent as ExtentRecord, FileExtent, MAX_COMPRESSED_EXTENT_BYTES,
};
use larder_format::objectid::{self, is_subvolume};
use larder_format::{FormatError, ItemType, Key, Logical, Node};
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

/// A data extent in the extent tree.
pub(super) struct FoundExtent {
    /// Its address.
    pub(super) start: u64,
    len_bytes: u64,
    /// The references in its item. Others may have keys of their own.
    inline: Vec<BackRef>,
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
        let at = (!of_whole_extent).then(|| logical - extent.start);
        let wanted = SoughtExtent { start: extent.start, at };
        let mut candidates = BTreeSet::new();
        let _: ControlFlow<()> = self.each_reference(&extent, |back_ref| {
            match back_ref {
                BackRef::Data { objectid, offset, .. } => {
                    candidates.insert(extent.near(objectid, offset));
                }
                BackRef::SharedData { parent, .. } => {
                    candidates.extend(self.candidates_in(Logical(parent), &wanted)?);
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
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
        let mut cursor = tree.cursor(Readahead::None);
        cursor.seek_last(Key::new(logical.0, ItemType::METADATA_ITEM, u64::MAX))?;
        // After an extent come its references, and a block group may begin at the same address.
        while cursor.key().is_some_and(|key| !is_extent(key)) {
            cursor.prev()?;
        }
        let Some((key, bytes)) = cursor.item() else { return Err(Error::NotFound) };
        if key.item_type != ItemType::EXTENT_ITEM || logical.0 - key.objectid >= key.offset {
            return Err(Error::NotFound);
        }
        let bad = |key, problem: FormatError| Error::item(objectid::EXTENT_TREE, key, problem);
        let record = ExtentRecord::parse(key, bytes).map_err(|problem| bad(key, problem))?;
        if record.is_tree_block() {
            return Err(Error::Invalid("there is a tree block"));
        }
        let mut inline = Vec::new();
        for back_ref in record.back_refs() {
            inline.push(back_ref.map_err(|problem| bad(key, problem))?.back_ref);
        }
        Ok(FoundExtent { start: key.objectid, len_bytes: key.offset, inline })
    }

    /// Visits the references to an extent, until `visit` ends that.
    pub(super) fn each_reference(
        &self,
        extent: &FoundExtent,
        mut visit: impl FnMut(BackRef) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        for back_ref in &extent.inline {
            if visit(*back_ref)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let tree = self.tree(objectid::EXTENT_TREE)?;
        let keyed = |item_type, offset| Key::new(extent.start, item_type, offset);
        let range =
            keyed(ItemType::EXTENT_DATA_REF, 0)..=keyed(ItemType::SHARED_DATA_REF, u64::MAX);
        let mut items = tree.range(range, Readahead::None);
        while let Some((key, bytes)) = items.next_item()? {
            if matches!(key.item_type, ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF) {
                let bad = |problem| Error::item(objectid::EXTENT_TREE, key, problem);
                if visit(BackRef::parse_keyed(key, bytes).map_err(bad)?)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
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
        let bad = |problem| Error::item(objectid::EXTENT_TREE, Key::MIN, problem);
        let node = Node::parse(&bytes).map_err(bad)?;
        let mut candidates = Vec::new();
        for slot in 0..node.nritems() {
            let key = node.key(slot);
            if key.item_type == ItemType::EXTENT_DATA
                && wanted.places_in(key, node.item_data(slot)).map_err(bad)?.is_some()
            {
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

impl FoundExtent {
    /// File extents whose offset in the file minus that in the extent is `origin`, which wraps
    /// around.
    pub(super) fn near(&self, inode: u64, origin: u64) -> Candidate {
        // The data of a compressed extent may be longer.
        let len_bytes = self.len_bytes.max(MAX_COMPRESSED_EXTENT_BYTES);
        match origin.checked_add(len_bytes) {
            Some(last) => Candidate { inode, first: origin, last },
            None => Candidate { inode, first: 0, last: origin.wrapping_add(len_bytes) },
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

fn is_extent(key: Key) -> bool {
    matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM)
}
