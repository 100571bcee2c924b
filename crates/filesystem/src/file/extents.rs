//! The extents of a file, one after the other, with the holes between them.
//!
//! # Invariants
//! - Data in memory shows only where the tree has none: elsewhere the extent shows that it will
//!   replace. Data in memory is noted before the tree is read, so that no data is missed on its way
//!   from memory to the tree.

use std::collections::VecDeque;
use std::ops::Range;

use larder_btree::{ItemRef, Readahead, ViewCursor};
use larder_format::{FileOffset, FormatError, ItemType, Key};

use crate::error::{Error, Result};
use crate::filesystem::sharing::OwnReferences;
use crate::handle::file::File;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::extent::{ExtentContent, MappedRange};
use crate::item::shown_extent::Extent;

/// Iterates over the extents of a file without gaps: where there is no item, there is a hole. Ends
/// after an error.
#[derive(Debug)]
pub struct Extents {
    subvolume: Subvolume,
    inode: u64,
    cursor: ViewCursor,
    state: State,
    /// The start of the range.
    asked: u64,
    /// The end of what was returned.
    position: u64,
    /// Items from here on are ignored.
    stop: u64,
    /// The end of the hole after the last extent.
    hole_until: u64,
    waiting: Waiting,
    /// Parts of an extent that has data in memory.
    parts: VecDeque<MappedRange>,
}

/// The data of a file that is in memory only.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Data, in order, in whole sectors.
    pub(crate) data: Vec<Range<u64>>,
    /// The tree's extents from there on are gone.
    pub(crate) cut: Option<u64>,
}

#[derive(Debug)]
enum State {
    Start,
    /// An extent that comes after a hole.
    Ahead(MappedRange),
    Walking,
    End,
}

impl File {
    /// The extents from the one that covers `offset` up to the end of the file, with the holes
    /// between them, and those allocated after the end. As with `FIEMAP` without
    /// `FIEMAP_FLAG_SYNC`, data in memory shows only where there is none on disk.
    pub fn extents_from(
        &self,
        offset: u64,
    ) -> Result<impl Iterator<Item = Result<Extent>> + use<>> {
        Ok(self.mapped_from(offset)?.map(|range| Ok(Extent::from(&range?))))
    }

    /// As [`extents_from`](Self::extents_from), with all that the items say.
    #[doc(hidden)]
    pub fn mapped_from(&self, offset: u64) -> Result<Extents> {
        let waiting = self.try_live_inode().map(|live| live.waiting()).unwrap_or_default();
        let mut extents = self.extents_between(offset, u64::MAX, self.size_bytes());
        extents.stop = waiting.cut.unwrap_or(u64::MAX);
        extents.waiting = waiting;
        Ok(extents)
    }

    /// The first offset at or after `offset` where there is data, as `SEEK_DATA` says: preallocated
    /// space counts as a hole.
    ///
    /// [`NoSuchPosition`](crate::ErrorKind::NoSuchPosition) if there is no more data.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, true)?.ok_or(Error::NoSuchPosition)
    }

    /// The first offset at or after `offset` where there is no data, as `SEEK_HOLE` says: at the
    /// latest the end of the file.
    ///
    /// [`NoSuchPosition`](crate::ErrorKind::NoSuchPosition) if `offset` is at or after the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.seek(offset, false)?.unwrap_or(self.size_bytes()))
    }

    /// The ranges that have data, in order, neither touching nor overlapping, cut at the end of the
    /// file.
    pub fn data_ranges(&self) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for extent in self.mapped_from(0)? {
            let extent = extent?;
            let (start, end) = (extent.start.0, extent.end().min(self.len_bytes()));
            match ranges.last_mut() {
                _ if !extent.is_data() || start >= end => {}
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Ok(ranges)
    }

    /// The ranges of [`data_ranges`](Self::data_ranges) that are known although some of the extents
    /// cannot be read, and the first error.
    #[doc(hidden)]
    pub fn data_ranges_left(&self) -> (Vec<Range<u64>>, Option<Error>) {
        let key = |offset| self.key(ItemType::EXTENT_DATA, offset);
        let sectorsize = self.core().sectorsize();
        let items = self.subvolume().view().range(key(0)..=key(u64::MAX), Readahead::Forward);
        let (mut ranges, mut first): (Vec<Range<u64>>, _) = (Vec::new(), None);
        for item in items {
            let extent = item.map_err(Error::from).and_then(|item| {
                let key = item.key();
                MappedRange::from_item(item, sectorsize)
                    .map_err(|problem| self.subvolume().bad_item(key, problem))
            });
            let extent = match extent {
                Ok(extent) => extent,
                Err(error) => {
                    first.get_or_insert(error);
                    continue;
                }
            };
            let known_to = ranges.last().map_or(0, |range| range.end);
            let start = extent.start.0.max(known_to);
            let end = extent.end().min(self.len_bytes());
            if !extent.is_data() || start >= end {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        (ranges, first)
    }

    fn seek(&self, offset: u64, for_data: bool) -> Result<Option<u64>> {
        let size_bytes = self.size_bytes();
        if offset >= size_bytes {
            return Err(Error::NoSuchPosition);
        }
        for extent in self.mapped_from(offset)? {
            let extent = extent?;
            if extent.start.0 >= size_bytes {
                break;
            }
            if extent.is_data() == for_data {
                return Ok(Some(extent.start.0.max(offset)));
            }
        }
        Ok(None)
    }

    /// Whether the extent at `offset` also belongs to another file, or to another place in this
    /// one, as `FIEMAP_EXTENT_SHARED` says. Two parts of one extent do not count if they are as far
    /// apart in the file as on disk.
    pub fn is_shared(&self, offset: u64) -> Result<bool> {
        let filesystem = self.subvolume().filesystem();
        // Dirty data is in no extent yet.
        filesystem.write_back()?;
        let Some(extent) = self.extents_within(offset, offset.saturating_add(1)).next() else {
            return Ok(false);
        };
        let extent = extent?;
        let (ExtentContent::Data(disk) | ExtentContent::Preallocated(disk)) = &extent.content
        else {
            return Ok(false);
        };
        let own = OwnReferences {
            subvolume: self.subvolume().id(),
            inode: self.number(),
            origin: Some(extent.start.0.wrapping_sub(disk.offset_bytes)),
        };
        let last_snapshot = self.subvolume().root_item().last_snapshot.get();
        let is_own_leaf = disk.generation > last_snapshot;
        let logical = disk.logical.0;
        filesystem.with_backrefs(|backrefs| own.is_shared(backrefs, logical, is_own_leaf))
    }
}

impl Inode {
    /// Bytes of dirty data for which the file has no space yet, in whole sectors. For `st_blocks`,
    /// add them to [`allocated_bytes`](crate::Metadata::allocated_bytes).
    pub fn unplaced_bytes(&self) -> Result<u64> {
        let sectorsize = self.core().sectorsize();
        let waiting = self.try_live_inode().map(|live| live.waiting()).unwrap_or_default();
        let mut unplaced_bytes = 0;
        for data in waiting.data {
            let mut at = data.start;
            for extent in self.extents_within(data.start, data.end) {
                let extent = extent?;
                let (start, end) = (extent.start.0, extent.end().next_multiple_of(sectorsize));
                let is_cut = waiting.cut.is_some_and(|cut| start >= cut);
                if !is_cut && !matches!(extent.content, ExtentContent::Hole) {
                    unplaced_bytes += start.clamp(at, data.end) - at;
                    at = end.clamp(at, data.end);
                }
            }
            unplaced_bytes += data.end - at;
        }
        Ok(unplaced_bytes)
    }

    /// The extents from the one that covers `start` to the one that covers the byte before `end`.
    pub(crate) fn extents_within(&self, start: u64, end: u64) -> Extents {
        self.extents_between(start, end, end)
    }

    fn extents_between(&self, start: u64, stop: u64, hole_until: u64) -> Extents {
        let cursor = self.subvolume().view().cursor(Readahead::Forward);
        Extents {
            subvolume: self.subvolume().clone(),
            inode: self.number(),
            cursor,
            state: State::Start,
            asked: start,
            position: start,
            stop,
            hole_until,
            waiting: Waiting::default(),
            parts: VecDeque::new(),
        }
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.cut.is_none()
    }
}

impl Extents {
    fn advance(&mut self) -> Result<Option<MappedRange>> {
        let next = match std::mem::replace(&mut self.state, State::Walking) {
            State::Start => self.first()?,
            State::Ahead(extent) => Some(extent),
            // What follows does not matter, and may be unreadable.
            State::Walking if self.position >= self.stop.max(self.hole_until) => return Ok(None),
            State::Walking => self.following()?,
            State::End => return Ok(None),
        };
        match next {
            Some(extent) if extent.start.0 > self.position => {
                let hole = self.hole(extent.start.0);
                self.state = State::Ahead(extent);
                Ok(Some(hole))
            }
            Some(extent) => {
                self.position = extent.end();
                Ok(Some(extent))
            }
            None => {
                self.state = State::End;
                Ok((self.position < self.hole_until).then(|| self.hole(self.hole_until)))
            }
        }
    }

    /// The extent that covers the position, or the first after it.
    fn first(&mut self) -> Result<Option<MappedRange>> {
        let is_at_item = self.cursor.seek_last(self.key(self.position))?;
        if is_at_item
            && self.is_own(self.cursor.key())
            && let Some(extent) = self.extent()?
            && extent.end() > self.position
        {
            return Ok(Some(extent));
        }
        self.following()
    }

    /// The extent of the next item.
    fn following(&mut self) -> Result<Option<MappedRange>> {
        let is_at_item = self.cursor.next()?;
        if !is_at_item || !self.is_own(self.cursor.key()) {
            return Ok(None);
        }
        let extent = self.extent()?;
        match &extent {
            Some(extent) if extent.start.0 < self.position => {
                let problem = FormatError::invalid("file extent", "it overlaps the one before");
                Err(self.subvolume.bad_item(self.key(extent.start.0), problem))
            }
            _ => Ok(extent.filter(|extent| extent.start.0 < self.stop)),
        }
    }

    /// The extent of the item under the cursor.
    fn extent(&self) -> Result<Option<MappedRange>> {
        let sectorsize = self.subvolume.filesystem().core().sectorsize();
        let parse = |item: ItemRef| {
            let key = item.key();
            MappedRange::from_item(item, sectorsize)
                .map_err(|problem| self.subvolume.bad_item(key, problem))
        };
        self.cursor.item_ref().map(parse).transpose()
    }

    /// Splits an extent without data in the tree, but with data in memory, into the parts that were
    /// asked for.
    fn take_apart(&mut self, extent: &MappedRange) {
        let whole = extent.start.0..extent.end().min(self.waiting.cut.unwrap_or(u64::MAX));
        let sectorsize = self.subvolume.filesystem().core().sectorsize();
        // A hole at the end of the file may end within a sector.
        let end = whole.end.next_multiple_of(sectorsize);
        let mut at = whole.start;
        let first = self.waiting.data.partition_point(|data| data.end <= at);
        for data in self.waiting.data[first..].iter().filter(|_| !extent.is_data()) {
            if data.start >= whole.end {
                break;
            }
            if at < data.start {
                self.parts.push_back(extent.part(&(at..data.start)));
            }
            let start = data.start.max(at);
            at = data.end.min(end);
            let content = ExtentContent::Delayed;
            let len_bytes = at - start;
            self.parts.push_back(MappedRange { start: FileOffset(start), len_bytes, content });
        }
        if at < whole.end {
            self.parts.push_back(extent.part(&(at..whole.end)));
        }
        let asked = self.asked;
        self.parts.retain(|part| part.end() > asked);
    }

    fn hole(&mut self, end: u64) -> MappedRange {
        let start = FileOffset(std::mem::replace(&mut self.position, end));
        MappedRange { start, len_bytes: end - start.0, content: ExtentContent::Hole }
    }

    fn key(&self, offset: u64) -> Key {
        Key::new(self.inode, ItemType::EXTENT_DATA, offset)
    }

    fn is_own(&self, key: Option<Key>) -> bool {
        key.is_some_and(|key| (key.objectid, key.item_type) == (self.inode, ItemType::EXTENT_DATA))
    }
}

impl Iterator for Extents {
    type Item = Result<MappedRange>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Some(Ok(part));
            }
            match self.advance() {
                Ok(Some(extent)) if self.waiting.is_empty() => return Some(Ok(extent)),
                Ok(Some(extent)) => self.take_apart(&extent),
                Ok(None) => return None,
                Err(error) => {
                    self.state = State::End;
                    return Some(Err(error));
                }
            }
        }
    }
}
