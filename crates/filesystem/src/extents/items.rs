//! Editing the EXTENT_DATA items of a file.
//!
//! # Invariants
//! - The tree is changed before the references that the change adds or drops are queued: the
//!   references of a copied leaf are counted from its items.
//! - Cutting a file extent keeps the difference of file offset and offset in the extent, so that
//!   the rest counts under the same reference.
//! - Any change of extents in a range drops what readers cached of the range, and the range is
//!   noted for the log if items changed. The state of the inode is locked meanwhile.

use std::ops::Range;
use std::sync::Arc;

use larder_btree::{LiveTree, Readahead};
use larder_format::compression::Algorithm;
use larder_format::item::{
    FileExtent, FileExtentHeader, FileExtentItem, FileExtentKind, RegularExtent,
};
use larder_format::{FormatError, ItemType, Key, Logical};
use larder_transaction::{DataExtent, DataOwner, Handle};
use zerocopy::{FromBytes, IntoBytes};

use crate::changed::Changed;
use crate::item::id::InodeId;
use crate::live::inode::LiveInode;

/// The file extents of one inode.
pub(crate) struct FileExtents<'a> {
    pub(crate) tree: &'a Arc<LiveTree>,
    pub(crate) id: InodeId,
    /// The inode in memory, if there is one.
    pub(crate) live: Option<&'a LiveInode>,
    pub(crate) handle: &'a Handle<'a>,
    /// Bytes in a sector.
    pub(crate) sectorsize: u64,
}

/// A file extent in the form of its item.
#[derive(Clone, Copy)]
pub(crate) enum Stored {
    /// All data of a short file, or its compressed first sector.
    Inline {
        /// Bytes of data, decompressed.
        len_bytes: u64,
    },
    /// An extent, or a hole.
    Regular(FileExtentItem),
}

/// File extents from some offset on.
pub(crate) struct Stretch {
    /// The extents, each with its offset, which may lie before the stretch.
    pub(crate) extents: Vec<(u64, Stored)>,
    /// There are no others before this offset.
    pub(crate) until: u64,
}

/// What was removed from a file.
pub(crate) struct Dropped {
    /// Bytes of it that were allocated.
    pub(crate) counted_bytes: u64,
    /// The end of the range that was removed.
    pub(crate) until: u64,
}

impl Stored {
    /// Whether there is an explicit item for the hole.
    pub(crate) fn is_hole(&self) -> bool {
        matches!(self, Self::Regular(item) if item.extent.disk_bytenr().is_none())
    }

    /// Whether it is preallocated.
    pub(crate) fn is_preallocated(&self) -> bool {
        matches!(self, Self::Regular(item) if item.header.kind == FileExtentKind::Prealloc as u8)
    }

    /// How many of the `len_bytes` count as allocated to the file.
    pub(crate) fn counted_bytes(&self, len_bytes: u64) -> u64 {
        match self {
            Self::Inline { len_bytes } => *len_bytes,
            Self::Regular(_) if self.is_hole() => 0,
            Self::Regular(_) => len_bytes,
        }
    }
}

impl<'a> FileExtents<'a> {
    /// The file extents of an inode in memory, to be changed with a handle.
    pub(crate) fn of(live: &'a LiveInode, handle: &'a Handle<'a>, sectorsize: u64) -> Self {
        FileExtents { tree: live.tree(), id: live.id(), live: Some(live), handle, sectorsize }
    }
}

impl FileExtents<'_> {
    /// Removes `start..end`, whole sectors, from the file. Returns how many bytes of it were
    /// allocated.
    pub(crate) fn drop_range(&self, start: u64, end: u64) -> Changed<u64> {
        Ok(self.drop_some(start, end, usize::MAX)?.counted_bytes)
    }

    /// Removes `start..end`, whole sectors, from the file, or a first part with `most` extents.
    pub(crate) fn drop_some(&self, start: u64, end: u64, most: usize) -> Changed<Dropped> {
        let Stretch { extents, until } = self.stretch(start, end, most)?;
        self.forget(start..until);
        if let Some(((first, _), (last, stored))) = extents.first().zip(extents.last()) {
            self.note(*first..*last + self.covered_bytes(stored));
        }
        let mut counted_bytes = 0;
        for (from, stored) in extents {
            counted_bytes += match &stored {
                Stored::Inline { len_bytes } => {
                    self.tree.delete(self.key(from))?;
                    *len_bytes
                }
                Stored::Regular(item) => {
                    let cut_bytes = self.cut(self.key(from), *item, start, until)?;
                    stored.counted_bytes(cut_bytes)
                }
            };
        }
        Ok(Dropped { counted_bytes, until })
    }

    /// Removes `start..end` from an extent that overlaps it. Returns the length that was removed.
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
        if let Some((data, owner)) = self.reference(from, &item) {
            match (from < start, back.is_some()) {
                (true, true) => self.handle.add_data_reference(data, owner),
                (false, false) => self.handle.drop_data_reference(data, owner),
                _ => {}
            }
        }
        Ok(to.min(end) - from.max(start))
    }

    /// Inserts an extent that was just allocated, where nothing is.
    pub(crate) fn insert_new(&self, start: u64, item: &FileExtentItem) -> Changed<()> {
        self.change(start..start + item.extent.num_bytes.get());
        self.tree.insert(self.key(start), item.as_bytes())?;
        let (data, owner) = self.reference(start, item).expect("it is no hole");
        self.handle.add_new_data(data, owner);
        Ok(())
    }

    /// Inserts a part of an extent that is shared, or a hole, where nothing is.
    pub(crate) fn insert_shared(&self, start: u64, item: &FileExtentItem) -> Changed<()> {
        self.change(start..start + item.extent.num_bytes.get());
        self.tree.insert(self.key(start), item.as_bytes())?;
        if let Some((data, owner)) = self.reference(start, item) {
            self.handle.add_data_reference(data, owner);
        }
        Ok(())
    }

    /// Inserts all of a file's data inline, where nothing is: `len_bytes`, in the encoding of
    /// `data`.
    pub(crate) fn insert_inline(
        &self,
        data: &[u8],
        len_bytes: u64,
        compression: Option<Algorithm>,
    ) -> Changed<()> {
        self.change(0..self.sectorsize);
        let header = self.header(len_bytes, FileExtentKind::Inline, compression);
        Ok(self.tree.insert(self.key(0), &[header.as_bytes(), data].concat())?)
    }

    /// Inserts hole items where there is no item from `start` to `end`, whole sectors.
    pub(crate) fn fill_holes(&self, start: u64, end: u64) -> Changed<()> {
        let mut at = start;
        let mut holes = Vec::new();
        for (from, stored) in self.stretch(start, end, usize::MAX)?.extents {
            if from > at {
                holes.push((at, from));
            }
            at = at.max(from + self.covered_bytes(&stored));
        }
        if at < end {
            holes.push((at, end));
        }
        for (from, to) in holes {
            self.note(from..to);
            self.tree.insert(self.key(from), self.hole(to - from).as_bytes())?;
        }
        Ok(())
    }

    /// Whether the file has an extent at or after `offset`.
    pub(crate) fn has_any_from(&self, offset: u64) -> Changed<bool> {
        Ok(!self.stretch(offset, u64::MAX, 1)?.extents.is_empty())
    }

    /// The extents that overlap `start..end`, or the first `most` of them.
    pub(crate) fn stretch(&self, start: u64, end: u64, most: usize) -> Changed<Stretch> {
        let mut extents = Vec::new();
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
                if extents.len() == most {
                    return Ok(Stretch { extents, until: key.offset });
                }
                extents.push((key.offset, stored));
            }
            is_there = cursor.next()?;
        }
        Ok(Stretch { extents, until: end })
    }

    /// The last extents that overlap the range from `start` on, at most `most`, the very last
    /// first.
    pub(crate) fn last(&self, start: u64, most: usize) -> Changed<Vec<(u64, Stored)>> {
        let mut extents = Vec::new();
        let mut cursor = self.tree.cursor(Readahead::Back);
        let mut is_there = cursor.seek_last(self.key(u64::MAX))?;
        while let Some((key, data)) = cursor.item()
            && is_there
            && self.is_own(key)
            && extents.len() < most
        {
            let stored = self.parse(key, data)?;
            if key.offset + self.covered_bytes(&stored) <= start {
                break;
            }
            extents.push((key.offset, stored));
            is_there = cursor.prev()?;
        }
        Ok(extents)
    }

    /// Bytes of the file that an extent covers, in whole sectors.
    pub(crate) fn covered_bytes(&self, stored: &Stored) -> u64 {
        match stored {
            Stored::Inline { len_bytes } => len_bytes.next_multiple_of(self.sectorsize),
            Stored::Regular(item) => item.extent.num_bytes.get(),
        }
    }

    fn parse(&self, key: Key, data: &[u8]) -> Changed<Stored> {
        let extent = FileExtent::parse(data).map_err(|problem| self.bad(key, problem))?;
        let overflows = || FormatError::invalid("file extent", "it passes the end of all offsets");
        let len_bytes = extent.num_bytes();
        // Up to the end of the sector that the longest possible file ends in.
        let end = key.offset.checked_add(len_bytes).filter(|end| *end <= 1 << 63);
        end.ok_or_else(|| self.bad(key, overflows()))?;
        Ok(match FileExtentItem::read_from_bytes(data) {
            Ok(item) if matches!(extent, FileExtent::Regular { .. }) => Stored::Regular(item),
            _ => Stored::Inline { len_bytes },
        })
    }

    /// The item of a hole.
    pub(crate) fn hole(&self, len_bytes: u64) -> FileExtentItem {
        let nowhere = DataExtent { logical: Logical(0), len_bytes: 0 };
        self.item(FileExtentKind::Regular, nowhere, len_bytes, None)
    }

    /// The item of all of an extent on disk, which holds `ram_bytes` of data.
    pub(crate) fn item(
        &self,
        kind: FileExtentKind,
        data: DataExtent,
        ram_bytes: u64,
        compression: Option<Algorithm>,
    ) -> FileExtentItem {
        FileExtentItem {
            header: self.header(ram_bytes, kind, compression),
            extent: RegularExtent {
                disk_bytenr: data.logical.0.into(),
                disk_num_bytes: data.len_bytes.into(),
                offset: 0.into(),
                num_bytes: ram_bytes.into(),
            },
        }
    }

    fn header(
        &self,
        ram_bytes: u64,
        kind: FileExtentKind,
        compression: Option<Algorithm>,
    ) -> FileExtentHeader {
        FileExtentHeader {
            generation: self.handle.generation().into(),
            ram_bytes: ram_bytes.into(),
            compression: compression.map_or(0, Algorithm::to_disk),
            encryption: 0,
            other_encoding: 0.into(),
            kind: kind as u8,
        }
    }

    /// The extent on disk that an item at `start` refers to, and the owner that it names; none for
    /// a hole.
    pub(crate) fn reference(
        &self,
        start: u64,
        item: &FileExtentItem,
    ) -> Option<(DataExtent, DataOwner)> {
        let logical = item.extent.disk_bytenr()?;
        let data = DataExtent { logical, len_bytes: item.extent.disk_num_bytes.get() };
        let offset = start.wrapping_sub(item.extent.offset.get());
        let owner = DataOwner { root: self.id.subvolume, inode: self.id.number, offset };
        Some((data, owner))
    }

    pub(crate) fn key(&self, offset: u64) -> Key {
        Key::new(self.id.number, ItemType::EXTENT_DATA, offset)
    }

    /// Notes that the items of a range change.
    fn change(&self, range: Range<u64>) {
        self.forget(range.clone());
        self.note(range);
    }

    /// Makes readers search for the extents of a range again.
    pub(crate) fn forget(&self, range: Range<u64>) {
        if let Some(live) = self.live {
            live.extents().forget(range);
        }
    }

    /// Makes the log look at the items of a range.
    pub(crate) fn note(&self, range: Range<u64>) {
        if let Some(live) = self.live {
            live.modified_extents.lock().add(range);
        }
    }

    fn is_own(&self, key: Key) -> bool {
        (key.objectid, key.item_type) == (self.id.number, ItemType::EXTENT_DATA)
    }

    fn bad(&self, key: Key, problem: FormatError) -> larder_transaction::Error {
        larder_transaction::Error::Item { tree: self.tree.id(), key, problem }
    }
}
