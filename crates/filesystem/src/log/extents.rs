//! The content of a log for the extents of a file.
//!
//! # Invariants
//! - A range that is logged has limits that no item crosses: neither in the current file, nor in
//!   the last commit, nor in the log. So a log never has two items that overlap.
//! - Everything after the end of the file, in whole sectors, is in the log: a replay first drops
//!   the extents there.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use larder_btree::{LiveTree, Readahead, TreeView};
use larder_format::item::{
    FileExtent, FileExtentHeader, FileExtentItem, FileExtentKind, InodeItem, RegularExtent,
};
use larder_format::{ItemType, Key};
use larder_transaction::{Items, TreeItems};
use zerocopy::{FromBytes, IntoBytes};

use crate::cache::modified_extents::ModifiedExtents;
use crate::changed::Changed;
use crate::core::writer::Writer;
use crate::item::id::InodeId;
use crate::log::content::Contents;
use crate::log::plan::{Trees, bad};
use crate::log::tree_difference::{Difference, differences};

/// A file that is to be logged.
pub(crate) struct FileLog<'a> {
    pub(crate) id: InodeId,
    pub(crate) trees: &'a Trees,
    pub(crate) log: Option<&'a Arc<LiveTree>>,
    /// Bytes in a sector.
    pub(crate) sectorsize: u64,
}

impl FileLog<'_> {
    /// The ranges to log, in order.
    pub(crate) fn changed(&self, writer: &Writer) -> Changed<Vec<Range<u64>>> {
        let end = self.end()?;
        let mut ranges = match writer.inodes.known(self.id) {
            Some(live) => live.modified_extents.lock().take(end),
            None => ModifiedExtents::default().take(end),
        };
        let item = Key::new(self.id.number, ItemType::INODE_ITEM, 0);
        let is_logged = self.log.map(|log| log.get(item)).transpose()?.flatten().is_some();
        if !is_logged && end < u64::MAX {
            ranges.push(end..u64::MAX);
        }
        let mut wide = ModifiedExtents::nothing(end);
        for range in ranges {
            wide.add(self.widened(range)?);
        }
        Ok(wide.take(end))
    }

    /// A range extended so that no item crosses its limits.
    fn widened(&self, mut range: Range<u64>) -> Changed<Range<u64>> {
        let live = TreeView::Live(self.trees.live.clone());
        let committed = TreeView::Committed(self.trees.committed.clone());
        let log = self.log.map(|log| TreeView::Live(log.clone()));
        let views: Vec<TreeView> = [live, committed].into_iter().chain(log).collect();
        loop {
            let before = range.clone();
            for view in &views {
                for offset in [range.start, range.end - 1] {
                    if let Some(item) = self.item_at(view, offset)? {
                        range = range.start.min(item.start)..range.end.max(item.end);
                    }
                }
            }
            if range == before {
                return Ok(range);
            }
        }
    }

    /// The range of the item that covers `offset`.
    fn item_at(&self, view: &TreeView, offset: u64) -> Changed<Option<Range<u64>>> {
        let mut cursor = view.cursor(Readahead::None);
        let is_at_item = cursor.seek_last(self.key(offset))?;
        let Some((key, data)) = cursor.item().filter(|(key, _)| is_at_item && self.is_its(key))
        else {
            return Ok(None);
        };
        let covered = covered(self.id, key, data, self.sectorsize)?;
        Ok(covered.contains(&offset).then_some(covered))
    }

    /// The extents in a range that differ from the last commit's, and holes where that has others.
    /// Also everything after the end.
    pub(crate) fn extents(&self, range: &Range<u64>) -> Changed<Contents> {
        let mut contents = Contents::new();
        let mut lost: Vec<Range<u64>> = Vec::new();
        let Trees { live, committed } = self.trees;
        let keys = self.key(range.start)..=self.key(range.end - 1);
        differences(live, committed, keys, |difference| {
            match difference {
                Difference::Now(key, data) => {
                    contents.insert(key, data.to_vec());
                }
                Difference::Then(key, data) => {
                    lost.push(covered(self.id, key, data, self.sectorsize)?);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let (items, end) = (TreeItems::new(live.clone()), self.end()?);
        for range in lost {
            let range = range.start..range.end.min(end);
            for hole in holes_in(&items, self.id, range, self.sectorsize)? {
                contents.insert(self.key(hole.start), hole_item(hole.end - hole.start));
            }
        }
        let first = self.key(end.max(range.start));
        let is_its = |(key, _): &(Key, Vec<u8>)| self.is_its(key) && range.contains(&key.offset);
        let mut next = items.at_or_before(first)?.filter(is_its);
        if next.is_none() {
            next = items.at_or_after(first)?.filter(is_its);
        }
        while let Some((key, data)) = next {
            if covered(self.id, key, &data, self.sectorsize)?.end > end {
                contents.insert(key, data);
            }
            let first = key.successor().unwrap_or(Key::MAX);
            next = items.at_or_after(first)?.filter(is_its);
        }
        Ok(contents)
    }

    /// The end of the file in whole sectors.
    fn end(&self) -> Changed<u64> {
        let size =
            |data: &[u8]| InodeItem::ref_from_prefix(data).map_or(0, |(item, _)| item.size.get());
        let item = Key::new(self.id.number, ItemType::INODE_ITEM, 0);
        let size = self.trees.live.get_with(item, size)?.unwrap_or(0);
        Ok(size.checked_next_multiple_of(self.sectorsize).unwrap_or(u64::MAX))
    }

    pub(crate) fn key(&self, offset: u64) -> Key {
        Key::new(self.id.number, ItemType::EXTENT_DATA, offset)
    }

    fn is_its(&self, key: &Key) -> bool {
        (key.objectid, key.item_type) == (self.id.number, ItemType::EXTENT_DATA)
    }
}

/// Where a range of a file has no extent now.
fn holes_in(
    items: &TreeItems,
    id: InodeId,
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

/// The range of the file that a file extent covers.
fn covered(id: InodeId, key: Key, data: &[u8], sectorsize: u64) -> Changed<Range<u64>> {
    let extent = FileExtent::parse(data).map_err(|problem| bad(id, key, problem))?;
    let end = key.offset.saturating_add(extent.num_bytes()).checked_next_multiple_of(sectorsize);
    // At least a sector, so that a walk advances.
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
