//! What a log holds of the inodes that it covers.
//!
//! # Invariants
//! - What a log holds of an inode follows from the inode now and in the last commit alone: what it held
//!   before is brought to that.
//! - Of the file's extents it holds what the last commit has not, and holes where that has more.
//! - Checksums of extents are in the log before anything can need them: when the extent enters it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use larder_btree::{LiveTree, Readahead, TreeView};
use larder_format::item::{
    DirLogItem, FileExtent, FileExtentHeader, FileExtentItem, FileExtentKind, InodeFlags,
    InodeItem, RegularExtent,
};
use larder_format::{ItemType, Key, Logical};
use larder_transaction::{Items, LogWriter, TreeItems};
use zerocopy::{FromBytes, IntoBytes};

use super::cover::{Coverage, NameChanges, Trees, bad};
use super::difference::{Difference, differences};
use crate::filesystem::Filesystem;
use crate::inode::links_of_item;
use crate::write::Changed;
use crate::write::node::NodeId;

/// Items that are changed beyond which a commit is cheaper.
const MOST_CHANGES: usize = 4096;
/// Extents of one file that the last commit does not have, beyond which a commit is cheaper: all of them are
/// looked at each time.
const MOST_EXTENTS: usize = 128;

/// Items by key.
type Contents = BTreeMap<Key, Vec<u8>>;

/// How a log is to be changed.
#[derive(Default)]
struct Changes {
    removed: BTreeSet<Key>,
    put: Contents,
}

impl Coverage {
    /// Brings the logs to what they are to hold. Returns whether there is room for that.
    pub(super) fn enter(
        &self,
        filesystem: &Filesystem,
        logs: &mut LogWriter<'_, '_>,
    ) -> Changed<bool> {
        let mut changes: BTreeMap<u64, Changes> = BTreeMap::new();
        for (id, names) in &self.inodes {
            let changes = changes.entry(id.subvolume).or_default();
            if !self.compare(filesystem, logs, *id, names.as_ref(), changes)? {
                return Ok(false);
            }
        }
        for id in &self.gone {
            let changes = changes.entry(id.subvolume).or_default();
            let (log, nothing) = (logs.log(id.subvolume), Contents::new());
            changes.forget_entries(log, *id, &nothing)?;
            changes.bring(log, *id, (ItemType(0), ItemType(u8::MAX)), &nothing)?;
        }
        let of_one = |changes: &Changes| changes.removed.len() + changes.put.len();
        let count: usize = changes.values().map(of_one).sum();
        // As many again for checksums.
        if count > MOST_CHANGES || !logs.promise(2 * count as u64)? {
            return Ok(false);
        }
        for (subvolume, changes) in &changes {
            if changes.removed.is_empty() && changes.put.is_empty() {
                continue;
            }
            let log = logs.log_or_new(*subvolume)?;
            log.delete_batch(&changes.removed.iter().copied().collect::<Vec<_>>())?;
            for (key, data) in &changes.put {
                log.put(*key, data)?;
                if key.item_type == ItemType::EXTENT_DATA
                    && !self.enter_checksums(filesystem, logs, &log, *subvolume, *key, data)?
                {
                    return Ok(false);
                }
            }
        }
        let writer = filesystem.try_writer().expect("it is being changed");
        writer.members.logged(self.inodes.keys().copied(), self.gone.iter().copied());
        Ok(true)
    }

    /// Finds out what is to change in the log about an inode; false if it is too much.
    fn compare(
        &self,
        filesystem: &Filesystem,
        logs: &LogWriter<'_, '_>,
        id: NodeId,
        names: Option<&NameChanges>,
        changes: &mut Changes,
    ) -> Changed<bool> {
        let (trees, log) = (&self.trees[&id.subvolume], logs.log(id.subvolume));
        let itself = (ItemType(0), ItemType::XATTR_ITEM);
        let contents = items(&TreeView::Live(trees.live.clone()), id, itself)?;
        changes.forget_entries(log, id, &contents)?;
        changes.bring(log, id, itself, &contents)?;
        if let Some(names) = names {
            let entries = (ItemType::DIR_LOG_ITEM, ItemType::DIR_INDEX);
            changes.bring(log, id, entries, &names.contents(id))?;
        }
        let data = (ItemType::EXTENT_DATA, ItemType::EXTENT_DATA);
        let end = trees.end_of(id, filesystem.sectorsize())?;
        let extents = trees.extents(id, end, filesystem.sectorsize())?;
        if extents.len() > MOST_EXTENTS {
            return Ok(false);
        }
        changes.bring(log, id, data, &extents)?;
        Ok(true)
    }

    /// Enters the checksums of an extent, if its file has any; whether they are all there.
    fn enter_checksums(
        &self,
        filesystem: &Filesystem,
        logs: &LogWriter<'_, '_>,
        log: &Arc<LiveTree>,
        subvolume: u64,
        key: Key,
        data: &[u8],
    ) -> Changed<bool> {
        let Some(range) = checksum_range(data) else { return Ok(true) };
        let live = &self.trees[&subvolume].live;
        let flags = |data: &[u8]| {
            InodeItem::ref_from_prefix(data).map_or(InodeFlags::empty(), |(item, _)| item.flags())
        };
        let flags = live.get_with(Key::new(key.objectid, ItemType::INODE_ITEM, 0), flags)?;
        if flags.is_some_and(|flags| flags.contains(InodeFlags::NODATASUM)) {
            return Ok(true);
        }
        let Ok(sums) = filesystem.checksums(Logical(range.start), Logical(range.end)) else {
            return Ok(false);
        };
        logs.insert_checksums(log, Logical(range.start), &sums)?;
        Ok(true)
    }
}

/// Where checksums lie that a file extent needs: none if it has no written data of its own.
fn checksum_range(data: &[u8]) -> Option<Range<u64>> {
    let Ok(FileExtent::Regular { header, extent, preallocated: false }) = FileExtent::parse(data)
    else {
        return None;
    };
    let start = extent.disk_bytenr()?.0;
    if header.compression != 0 {
        return Some(start..start + extent.disk_num_bytes.get());
    }
    let start = start + extent.offset.get();
    Some(start..start + extent.num_bytes.get())
}

impl Changes {
    /// Notes what it takes to bring the items of an inode that are of these types from what the log has to
    /// `contents`.
    fn bring(
        &mut self,
        log: Option<&Arc<LiveTree>>,
        id: NodeId,
        types: (ItemType, ItemType),
        contents: &Contents,
    ) -> Changed<()> {
        let logged = match log {
            Some(log) => items(&TreeView::Live(log.clone()), id, types)?,
            None => Contents::new(),
        };
        self.removed.extend(logged.keys().filter(|key| !contents.contains_key(key)));
        let is_new = |(key, data): &(&Key, &Vec<u8>)| logged.get(key) != Some(data);
        let new = contents.iter().filter(is_new).map(|(key, data)| (*key, data.clone()));
        self.put.extend(new);
        Ok(())
    }
}

impl Changes {
    /// Notes that entries of directories go from the log that lead to an inode by names which it had when
    /// it was logged and has no more.
    fn forget_entries(
        &mut self,
        log: Option<&Arc<LiveTree>>,
        id: NodeId,
        contents: &Contents,
    ) -> Changed<()> {
        let Some(log) = log else { return Ok(()) };
        let references = (ItemType::INODE_REF, ItemType::INODE_EXTREF);
        let places = |contents: &Contents| -> Changed<BTreeSet<(u64, u64)>> {
            let mut places = BTreeSet::new();
            for (key, data) in contents
                .iter()
                .filter(|(key, _)| (references.0..=references.1).contains(&key.item_type))
            {
                links_of_item(*key, data, |directory, index, _| {
                    places.insert((directory, index));
                })
                .map_err(|problem| bad(id, *key, problem))?;
            }
            Ok(places)
        };
        let then = places(&items(&TreeView::Live(log.clone()), id, references)?)?;
        let entry =
            |(directory, index): &(u64, u64)| Key::new(*directory, ItemType::DIR_INDEX, *index);
        self.removed.extend(then.difference(&places(contents)?).map(entry));
        Ok(())
    }
}

/// The items of an inode that are of these types.
fn items(tree: &TreeView, id: NodeId, types: (ItemType, ItemType)) -> Changed<Contents> {
    let first = Key::new(id.number, types.0, 0);
    let last = Key::new(id.number, types.1, u64::MAX);
    let mut found = tree.range(first..=last, Readahead::None);
    let mut items = Contents::new();
    while let Some((key, data)) = found.next_item()? {
        items.insert(key, data.to_vec());
    }
    Ok(items)
}

impl NameChanges {
    /// The entries that came, and ranges of those that went.
    fn contents(&self, id: NodeId) -> Contents {
        let mut contents = Contents::new();
        for (index, entry) in &self.came {
            contents.insert(Key::new(id.number, ItemType::DIR_INDEX, *index), entry.clone());
        }
        for index in &self.went {
            let key = Key::new(id.number, ItemType::DIR_LOG_INDEX, *index);
            contents.insert(key, DirLogItem { end: (*index).into() }.as_bytes().to_vec());
        }
        contents
    }
}

impl Trees {
    /// The extents of a file that the last commit does not have just so, and holes where it has others.
    /// And all that is behind the end, in whole sectors: a replay first drops what it finds there.
    fn extents(&self, id: NodeId, end: u64, sectorsize: u64) -> Changed<Contents> {
        let mut contents = Contents::new();
        let mut lost: Vec<Range<u64>> = Vec::new();
        let (number, item_type) = (id.number, ItemType::EXTENT_DATA);
        differences(&self.live, &self.committed, number, item_type, |difference| {
            match difference {
                Difference::Now(key, data) => {
                    contents.insert(key, data.to_vec());
                }
                Difference::Then(key, data) => lost.push(covered(id, key, data, sectorsize)?),
            }
            Ok(())
        })?;
        let items = TreeItems::new(self.live.clone());
        for range in lost {
            let range = range.start..range.end.min(end);
            for hole in holes_in(&items, id, range, sectorsize)? {
                let key = Key::new(number, item_type, hole.start);
                contents.insert(key, hole_item(hole.end - hole.start));
            }
        }
        let at = |offset| Key::new(number, item_type, offset);
        let is_its = |key: &Key| (key.objectid, key.item_type) == (number, item_type);
        let mut next = items.at_or_before(at(end))?.filter(|(key, _)| is_its(key));
        if next.is_none() {
            next = items.at_or_after(at(end))?.filter(|(key, _)| is_its(key));
        }
        while let Some((key, data)) = next {
            let behind = covered(id, key, &data, sectorsize)?.end;
            if behind > end {
                contents.insert(key, data);
            }
            let first = key.successor().unwrap_or(Key::MAX);
            next = items.at_or_after(first)?.filter(|(key, _)| is_its(key));
        }
        Ok(contents)
    }

    /// The end of a file in whole sectors.
    fn end_of(&self, id: NodeId, sectorsize: u64) -> Changed<u64> {
        let size =
            |data: &[u8]| InodeItem::ref_from_prefix(data).map_or(0, |(item, _)| item.size.get());
        let size = self.live.get_with(Key::new(id.number, ItemType::INODE_ITEM, 0), size)?;
        Ok(size.unwrap_or(0).checked_next_multiple_of(sectorsize).unwrap_or(u64::MAX))
    }
}

/// Where a range of a file has no extent now.
fn holes_in(
    items: &TreeItems,
    id: NodeId,
    range: Range<u64>,
    sectorsize: u64,
) -> Changed<Vec<Range<u64>>> {
    let at = |offset| Key::new(id.number, ItemType::EXTENT_DATA, offset);
    let mut holes = Vec::new();
    let mut start = range.start;
    if let Some((key, data)) = items.at_or_before(at(start))?
        && (key.objectid, key.item_type) == (id.number, ItemType::EXTENT_DATA)
    {
        start = start.max(covered(id, key, &data, sectorsize)?.end);
    }
    while start < range.end {
        let next = items.at_or_after(at(start))?.filter(|(key, _)| *key < at(range.end));
        let Some((key, data)) = next else {
            holes.push(start..range.end);
            break;
        };
        if key.offset > start {
            holes.push(start..key.offset);
        }
        start = covered(id, key, &data, sectorsize)?.end;
    }
    Ok(holes)
}

/// What a file extent covers of its file.
fn covered(id: NodeId, key: Key, data: &[u8], sectorsize: u64) -> Changed<Range<u64>> {
    let extent = FileExtent::parse(data).map_err(|problem| bad(id, key, problem))?;
    let end = key.offset.saturating_add(extent.num_bytes()).checked_next_multiple_of(sectorsize);
    // At least a sector, so that whoever walks gets on.
    Ok(key.offset..end.unwrap_or(u64::MAX).max(key.offset.saturating_add(sectorsize)))
}

fn hole_item(len_bytes: u64) -> Vec<u8> {
    let header = FileExtentHeader {
        generation: 0.into(),
        ram_bytes: len_bytes.into(),
        compression: 0,
        encryption: 0,
        other_encoding: 0.into(),
        kind: FileExtentKind::Regular as u8,
    };
    let extent = RegularExtent {
        disk_bytenr: 0.into(),
        disk_num_bytes: 0.into(),
        offset: 0.into(),
        num_bytes: len_bytes.into(),
    };
    FileExtentItem { header, extent }.as_bytes().to_vec()
}
