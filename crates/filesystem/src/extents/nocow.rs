//! Writing into space that a file already has: preallocated space and, in files that are
//! overwritten in place, their data.
//!
//! # Invariants
//! - Data is never written in place if anything else refers to it: another file, another part of
//!   this one, a snapshot.
//! - Preallocated space reads as zeros until all of the data that replaces it is written.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_format::Logical;
use larder_format::item::{FileExtentItem, FileExtentKind, InodeFlags};
use zerocopy::IntoBytes;

use crate::changed::Changed;
use crate::extents::items::{FileExtents, Stored};

/// A range of a file, and where its data goes.
pub(crate) struct Target {
    pub(crate) range: Range<u64>,
    /// The address of space that only this file has; none if a new extent is needed.
    pub(crate) place: Option<Logical>,
}

impl FileExtents<'_> {
    /// Where the data of `range`, whole sectors, goes in a file with these flags. The file's
    /// extents from `cut` on are gone.
    pub(crate) fn targets(
        &self,
        cut: Option<u64>,
        flags: InodeFlags,
        range: Range<u64>,
    ) -> Changed<Vec<Target>> {
        let mut targets = Vec::new();
        let mut at = range.start;
        // Extents that will be cut off do not count.
        let end = range.end.min(cut.unwrap_or(u64::MAX));
        let may_have_room = flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
        if may_have_room && at < end {
            for (from, stored) in self.stretch(at, end, usize::MAX)?.extents {
                let Stored::Regular(item) = stored else { continue };
                if !self.is_preallocated(flags, from, &item)? {
                    continue;
                }
                let start = from.max(at);
                if at < start {
                    targets.push(Target { range: at..start, place: None });
                }
                at = end.min(from + item.extent.num_bytes.get());
                let within = item.extent.offset.get() + (start - from);
                let place = item.extent.disk_bytenr().map(|logical| Logical(logical.0 + within));
                targets.push(Target { range: start..at, place });
            }
        }
        if at < range.end {
            targets.push(Target { range: at..range.end, place: None });
        }
        Ok(targets)
    }

    /// Whether data may be written in place to an extent of the file, which starts at `from`.
    fn is_preallocated(
        &self,
        flags: InodeFlags,
        from: u64,
        item: &FileExtentItem,
    ) -> Changed<bool> {
        let is_written = item.header.kind != FileExtentKind::Prealloc as u8;
        let Some((data, owner)) = self.reference(from, item) else { return Ok(false) };
        if is_written && !flags.contains(InodeFlags::NODATACOW) {
            return Ok(false);
        }
        // Snapshots may share the leaf of an older extent, and with it the extent.
        let is_old = item.header.generation.get() <= self.tree.last_snapshot();
        if item.header.compression != 0 || is_old {
            return Ok(false);
        }
        self.handle.is_sole_owner(data, owner)
    }

    /// Notes that `start..end`, whole sectors of space that only this file has, has data. Adjacent
    /// pieces of one extent become one item.
    pub(crate) fn mark_written(&self, start: u64, end: u64) -> Changed<()> {
        self.forget(start..end);
        // With its neighbours, which it may join.
        let (first, last) = (start.saturating_sub(1), end.saturating_add(1));
        let mut before = BTreeMap::new();
        for (from, stored) in self.stretch(first, last, usize::MAX)?.extents {
            if let Stored::Regular(item) = stored {
                before.insert(from, item);
            }
        }
        if let Some((from, last)) = before.keys().next().zip(before.last_key_value()) {
            self.note(*from..last.0 + last.1.extent.num_bytes.get());
        }
        let pieces = before.iter().flat_map(|(from, item)| self.written(*from, item, start, end));
        let mut after: BTreeMap<u64, FileExtentItem> = BTreeMap::new();
        for (from, piece) in pieces {
            match after.last_entry() {
                Some(mut last) if continues(*last.key(), last.get(), from, &piece) => {
                    let last = last.get_mut();
                    let len_bytes = last.extent.num_bytes.get() + piece.extent.num_bytes.get();
                    last.extent.num_bytes = len_bytes.into();
                    last.header.generation = self.handle.generation().into();
                }
                _ => drop(after.insert(from, piece)),
            }
        }
        self.replace(&before, &after)
    }

    /// The pieces of an extent after `start..end` of it got data, if it is preallocated.
    fn written(
        &self,
        from: u64,
        item: &FileExtentItem,
        start: u64,
        end: u64,
    ) -> Vec<(u64, FileExtentItem)> {
        let to = from + item.extent.num_bytes.get();
        let is_written = item.header.kind != FileExtentKind::Prealloc as u8;
        let inner = start.clamp(from, to)..end.clamp(from, to);
        if is_written || inner.is_empty() {
            return vec![(from, *item)];
        }
        let bounds = [from..inner.start, inner.clone(), inner.end..to];
        let piece = |range: Range<u64>| {
            let mut piece = *item;
            piece.extent.offset = (item.extent.offset.get() + (range.start - from)).into();
            piece.extent.num_bytes = (range.end - range.start).into();
            if range == inner {
                piece.header.kind = FileExtentKind::Regular as u8;
                piece.header.generation = self.handle.generation().into();
            }
            (range.start, piece)
        };
        bounds.into_iter().filter(|range| !range.is_empty()).map(piece).collect()
    }

    /// Replaces extents with others that cover the same parts of the same extents on disk.
    fn replace(
        &self,
        before: &BTreeMap<u64, FileExtentItem>,
        after: &BTreeMap<u64, FileExtentItem>,
    ) -> Changed<()> {
        for from in before.keys().filter(|from| !after.contains_key(from)) {
            self.tree.delete(self.key(*from))?;
        }
        for (from, item) in after {
            if before.get(from) != Some(item) {
                self.tree.put(self.key(*from), item.as_bytes())?;
            }
        }
        for (from, item) in after.iter().filter(|(from, _)| !before.contains_key(from)) {
            if let Some((data, owner)) = self.reference(*from, item) {
                self.handle.add_data_reference(data, owner);
            }
        }
        for (from, item) in before.iter().filter(|(from, _)| !after.contains_key(from)) {
            if let Some((data, owner)) = self.reference(*from, item) {
                self.handle.drop_data_reference(data, owner);
            }
        }
        Ok(())
    }
}

/// Whether a piece of written data is contiguous with the one before it, in the file and on disk.
fn continues(start: u64, last: &FileExtentItem, from: u64, piece: &FileExtentItem) -> bool {
    let is_plain = |item: &FileExtentItem| {
        item.header.kind == FileExtentKind::Regular as u8 && item.header.compression == 0
    };
    let len_bytes = last.extent.num_bytes.get();
    let is_same = last.extent.disk_bytenr == piece.extent.disk_bytenr
        && last.extent.disk_num_bytes == piece.extent.disk_num_bytes
        && last.extent.disk_bytenr().is_some();
    is_same
        && is_plain(last)
        && is_plain(piece)
        && start + len_bytes == from
        && last.extent.offset.get() + len_bytes == piece.extent.offset.get()
}
