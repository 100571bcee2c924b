//! From trees and addresses to files: items of any tree, and the files that refer to data.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use larder_btree::{Problem, Readahead, TreeError};
use larder_format::item::{BackRef, Extent as ExtentRecord, FileExtent};
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
struct Candidate {
    inode: u64,
    first: u64,
    last: u64,
}

/// The data extent that is searched for.
struct SoughtExtent {
    start: u64,
    /// The offset in it; `None` for any part of it.
    at: Option<u64>,
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
        let (start, refs) = self.data_extent(Logical(logical))?;
        let at = (!of_whole_extent).then(|| logical - start);
        let wanted = SoughtExtent { start, at };
        let mut candidates = BTreeSet::new();
        for back_ref in refs {
            match back_ref {
                BackRef::Data { objectid, offset, .. } => {
                    candidates.insert(Candidate::near(objectid, offset));
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
                places.extend(places_in(&subvolume, *candidate, &wanted)?);
            }
        }
        Ok(places.into_iter().collect())
    }

    /// Whether anything except the inode `own`, a subvolume and the number in it, refers to the data
    /// extent at `logical`, as of the last commit. With `is_own_leaf` no other subvolume has the
    /// leaf with the reference of `own`.
    pub(crate) fn is_shared(
        &self,
        logical: u64,
        own: (u64, u64),
        is_own_leaf: bool,
    ) -> Result<bool> {
        let (start, refs) = match self.data_extent(Logical(logical)) {
            // It is newer.
            Err(Error::NotFound) => return Ok(false),
            found => found?,
        };
        let is_own = |back_ref: &BackRef| match back_ref {
            BackRef::Data { root, objectid, .. } => (*root, *objectid) == own,
            _ => false,
        };
        if is_own_leaf && refs.iter().all(is_own) {
            return Ok(false);
        }
        let wanted = SoughtExtent { start, at: None };
        let mut candidates = BTreeSet::new();
        let mut likely = BTreeSet::new();
        for back_ref in refs {
            match back_ref {
                BackRef::Data { root, objectid, offset, .. } => {
                    candidates.insert(Candidate::near(objectid, offset));
                    likely.extend(Some(root).filter(|root| is_subvolume(*root)));
                }
                BackRef::SharedData { parent, .. } => {
                    candidates.extend(self.candidates_in(Logical(parent), &wanted)?);
                }
                _ => {}
            }
        }
        let refers = |id: u64| -> Result<bool> {
            let subvolume = match self.subvolume_by_id(id) {
                Err(error) if error.kind() == crate::ErrorKind::NotFound => return Ok(false),
                found => found?,
            };
            for candidate in candidates.iter().filter(|found| (id, found.inode) != own) {
                if !places_in(&subvolume, *candidate, &wanted)?.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        for id in &likely {
            if refers(*id)? {
                return Ok(true);
            }
        }
        for info in self.subvolumes() {
            let info = info?;
            if !info.is_being_deleted && !likely.contains(&info.id) && refers(info.id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The data extent that contains `logical`: its address, and its references.
    fn data_extent(&self, logical: Logical) -> Result<(u64, Vec<BackRef>)> {
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
        let mut refs = Vec::new();
        for back_ref in record.back_refs() {
            refs.push(back_ref.map_err(|problem| bad(key, problem))?.back_ref);
        }
        let keyed = |item_type, offset| Key::new(key.objectid, item_type, offset);
        let range =
            keyed(ItemType::EXTENT_DATA_REF, 0)..=keyed(ItemType::SHARED_DATA_REF, u64::MAX);
        let mut items = tree.range(range, Readahead::None);
        while let Some((key, bytes)) = items.next_item()? {
            if matches!(key.item_type, ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF) {
                refs.push(BackRef::parse_keyed(key, bytes).map_err(|problem| bad(key, problem))?);
            }
        }
        Ok((key.objectid, refs))
    }

    /// The file extents in the leaf at `leaf` that refer to the extent.
    fn candidates_in(&self, leaf: Logical, wanted: &SoughtExtent) -> Result<Vec<Candidate>> {
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
                && wanted.offset_in(key, node.item_data(slot)).map_err(bad)?.is_some()
            {
                let (inode, offset) = (key.objectid, key.offset);
                candidates.push(Candidate { inode, first: offset, last: offset });
            }
        }
        Ok(candidates)
    }
}

/// The places in files of this subvolume that refer to the data, for one candidate.
fn places_in(
    subvolume: &Subvolume,
    candidate: Candidate,
    wanted: &SoughtExtent,
) -> Result<Vec<FilePlace>> {
    let key = |offset| Key::new(candidate.inode, ItemType::EXTENT_DATA, offset);
    let range = key(candidate.first)..=key(candidate.last);
    let mut items = subvolume.view().range(range, Readahead::Forward);
    let mut places = Vec::new();
    while let Some((key, bytes)) = items.next_item()? {
        let offset =
            wanted.offset_in(key, bytes).map_err(|problem| subvolume.bad_item(key, problem))?;
        if let Some(offset) = offset {
            places.push(FilePlace { subvolume: subvolume.id(), inode: key.objectid, offset });
        }
    }
    Ok(places)
}

impl Candidate {
    /// Those whose offset in the file minus that in the extent is `offset`, which wraps around.
    fn near(inode: u64, offset: u64) -> Self {
        let last = offset.checked_add(larder_format::item::MAX_EXTENT_BYTES);
        match last {
            Some(last) => Self { inode, first: offset, last },
            None => Self { inode, first: 0, last: larder_format::item::MAX_EXTENT_BYTES },
        }
    }
}

impl SoughtExtent {
    /// The offset in the file of the data that is searched for, if a file extent has it.
    fn offset_in(&self, key: Key, bytes: &[u8]) -> Result<Option<u64>, FormatError> {
        let FileExtent::Regular { header, extent, .. } = FileExtent::parse(bytes)? else {
            return Ok(None);
        };
        if extent.disk_bytenr.get() != self.start {
            return Ok(None);
        }
        let (first, len) = (extent.offset.get(), extent.num_bytes.get());
        match self.at {
            // The bytes of compressed data have no addresses of their own.
            Some(at) if header.compression == 0 => {
                let behind = at.checked_sub(first).filter(|behind| *behind < len);
                Ok(behind.and_then(|behind| key.offset.checked_add(behind)))
            }
            _ => Ok(Some(key.offset)),
        }
    }
}

fn is_extent(key: Key) -> bool {
    matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM)
}
