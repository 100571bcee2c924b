//! Editing the EXTENT_DATA items of a file.
//!
//! # Invariants
//! - The tree is changed before the references that the change adds or drops are queued: copying the
//!   leaf counts what is in it.
//! - Cutting a file extent leaves the difference of file offset and offset in the extent as it was, so
//!   that what is left is counted under the same reference.

use std::sync::Arc;

use larder_btree::{LiveTree, Readahead};
use larder_format::item::{
    FileExtent, FileExtentHeader, FileExtentItem, FileExtentKind, RegularExtent,
};
use larder_format::{FormatError, ItemType, Key, Logical};
use larder_transaction::{DataExtent, DataOwner, Handle};
use zerocopy::{FromBytes, IntoBytes};

use super::Changed;
use super::node::NodeId;

/// The file extents of one inode.
pub(super) struct FileExtents<'a> {
    pub(super) tree: &'a Arc<LiveTree>,
    pub(super) id: NodeId,
    pub(super) handle: &'a Handle<'a>,
    /// Bytes in a sector.
    pub(super) sectorsize: u64,
}

/// A file extent as its item has it.
enum Stored {
    Inline { len_bytes: u64 },
    Regular(FileExtentItem),
}

impl Stored {
    /// Bytes that count as allocated to the file, of `len_bytes` of it.
    fn counted_bytes(&self, len_bytes: u64) -> u64 {
        match self {
            Self::Inline { len_bytes } => *len_bytes,
            Self::Regular(item) if item.extent.disk_bytenr().is_none() => 0,
            Self::Regular(_) => len_bytes,
        }
    }
}

impl FileExtents<'_> {
    /// Takes `start..end`, whole sectors, out of the file. Returns how many bytes of it were allocated.
    pub(super) fn drop_range(&self, start: u64, end: u64) -> Changed<u64> {
        let mut dropped_bytes = 0;
        for (key, data) in self.overlapping(start, end)? {
            let stored = self.parse(key, &data)?;
            dropped_bytes += match &stored {
                Stored::Inline { len_bytes } => {
                    self.tree.delete(key)?;
                    *len_bytes
                }
                Stored::Regular(item) => {
                    let cut_bytes = self.cut(key, *item, start, end)?;
                    stored.counted_bytes(cut_bytes)
                }
            };
        }
        Ok(dropped_bytes)
    }

    /// Takes `start..end` out of an extent that overlaps it. Returns the length of what was taken.
    fn cut(&self, key: Key, item: FileExtentItem, start: u64, end: u64) -> Changed<u64> {
        let (from, len_bytes) = (key.offset, item.extent.num_bytes.get());
        let to = from + len_bytes;
        let back = (end < to).then(|| {
            let mut back = item;
            back.extent.num_bytes = (to - end).into();
            if item.extent.disk_bytenr().is_some() {
                back.extent.offset = (item.extent.offset.get() + (end - from)).into();
            }
            back
        });
        if from < start {
            let mut front = item;
            front.extent.num_bytes = (start - from).into();
            self.tree.modify(key, |data| data.copy_from_slice(front.as_bytes()))?;
        } else {
            self.tree.delete(key)?;
        }
        if let Some(back) = &back {
            self.tree.insert(Key { offset: end, ..key }, back.as_bytes())?;
        }
        if let Some(logical) = item.extent.disk_bytenr() {
            let data = DataExtent { logical, len_bytes: item.extent.disk_num_bytes.get() };
            let owner = self.owner(from.wrapping_sub(item.extent.offset.get()));
            match (from < start, back.is_some()) {
                (true, true) => self.handle.add_data_reference(data, owner),
                (false, false) => self.handle.drop_data_reference(data, owner),
                _ => {}
            }
        }
        Ok(to.min(end) - from.max(start))
    }

    /// Enters data that was written to an extent of its own, where nothing is.
    pub(super) fn insert_data(&self, start: u64, data: DataExtent) -> Changed<()> {
        let item = self.item(data.len_bytes, data.logical);
        self.tree.insert(self.key(start), item.as_bytes())?;
        self.handle.add_new_data(data, self.owner(start));
        Ok(())
    }

    /// Enters all of a file's data inline, where nothing is.
    pub(super) fn insert_inline(&self, data: &[u8]) -> Changed<()> {
        let header = self.header(data.len() as u64, FileExtentKind::Inline);
        Ok(self.tree.insert(self.key(0), &[header.as_bytes(), data].concat())?)
    }

    /// Enters hole items where there is no item from `start` to `end`, whole sectors.
    pub(super) fn fill_holes(&self, start: u64, end: u64) -> Changed<()> {
        let mut at = start;
        let mut holes = Vec::new();
        for (key, data) in self.overlapping(start, end)? {
            if key.offset > at {
                holes.push((at, key.offset));
            }
            at = at.max(key.offset + self.covered_bytes(&self.parse(key, &data)?));
        }
        if at < end {
            holes.push((at, end));
        }
        for (from, to) in holes {
            let item = self.item(to - from, Logical(0));
            self.tree.insert(self.key(from), item.as_bytes())?;
        }
        Ok(())
    }

    /// Whether the file has an extent at or behind `offset`.
    pub(super) fn has_any_from(&self, offset: u64) -> Changed<bool> {
        Ok(!self.overlapping(offset, u64::MAX)?.is_empty())
    }

    /// The items of extents that overlap `start..end`.
    fn overlapping(&self, start: u64, end: u64) -> Changed<Vec<(Key, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut cursor = self.tree.cursor(Readahead::None);
        let mut is_there = cursor.seek_last(self.key(start))?;
        if !is_there || !cursor.key().is_some_and(|key| self.is_own(key)) {
            is_there = cursor.seek(self.key(start))?;
        }
        while let Some((key, data)) = cursor.item()
            && is_there
            && self.is_own(key)
            && key.offset < end
        {
            let stored = self.parse(key, data)?;
            if key.offset + self.covered_bytes(&stored) > start {
                found.push((key, data.to_vec()));
            }
            is_there = cursor.next()?;
        }
        Ok(found)
    }

    fn covered_bytes(&self, stored: &Stored) -> u64 {
        match stored {
            Stored::Inline { len_bytes } => len_bytes.next_multiple_of(self.sectorsize),
            Stored::Regular(item) => item.extent.num_bytes.get(),
        }
    }

    fn parse(&self, key: Key, data: &[u8]) -> Changed<Stored> {
        let extent = FileExtent::parse(data).map_err(|problem| self.bad(key, problem))?;
        let overflows = || FormatError::invalid("file extent", "it passes the end of all offsets");
        let len_bytes = extent.num_bytes();
        // Leaves room for rounding up to whole sectors.
        let end = key.offset.checked_add(len_bytes).filter(|end| *end < i64::MAX as u64);
        end.ok_or_else(|| self.bad(key, overflows()))?;
        Ok(match FileExtentItem::read_from_bytes(data) {
            Ok(item) if matches!(extent, FileExtent::Regular { .. }) => Stored::Regular(item),
            _ => Stored::Inline { len_bytes },
        })
    }

    fn item(&self, len_bytes: u64, logical: Logical) -> FileExtentItem {
        let is_hole = logical == Logical(0);
        FileExtentItem {
            header: self.header(len_bytes, FileExtentKind::Regular),
            extent: RegularExtent {
                disk_bytenr: logical.0.into(),
                disk_num_bytes: if is_hole { 0 } else { len_bytes }.into(),
                offset: 0.into(),
                num_bytes: len_bytes.into(),
            },
        }
    }

    fn header(&self, ram_bytes: u64, kind: FileExtentKind) -> FileExtentHeader {
        FileExtentHeader {
            generation: self.handle.generation().into(),
            ram_bytes: ram_bytes.into(),
            compression: 0,
            encryption: 0,
            other_encoding: 0.into(),
            kind: kind as u8,
        }
    }

    fn owner(&self, offset: u64) -> DataOwner {
        DataOwner { root: self.id.subvolume, inode: self.id.number, offset }
    }

    fn key(&self, offset: u64) -> Key {
        Key::new(self.id.number, ItemType::EXTENT_DATA, offset)
    }

    fn is_own(&self, key: Key) -> bool {
        (key.objectid, key.item_type) == (self.id.number, ItemType::EXTENT_DATA)
    }

    fn bad(&self, key: Key, problem: FormatError) -> larder_transaction::Error {
        larder_transaction::Error::Item { tree: self.tree.id(), key, problem }
    }
}
