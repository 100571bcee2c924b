//! Making holes, in steps: a file may have any number of extents.

use std::ops::Range;

use larder_format::feature::IncompatFlags;

use crate::core::changed::Changed;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::file::allocate::checked_end;
use crate::file::extent_items::{Dropped, FileExtents, Stretch};
use crate::file::read_live::Need;
use crate::file::writeback::flush::write_back;
use crate::inode::handle::Inode;
use crate::operation::file_change::FileChange;

/// Extents that go in one transaction.
pub(crate) const EXTENTS_PER_STEP: usize = 128;

/// What of a range goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Everything,
    /// All but what is preallocated.
    Data,
}

impl Inode {
    /// Makes `len_bytes` of the regular file from `offset` on a hole: they read as zeros, and whole sectors
    /// among them take no space any more. The size stays as it is.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` if `len_bytes` is 0. After an error, or a crash, a
    /// part may have been made a hole.
    pub fn punch_hole(&self, offset: u64, len_bytes: u64) -> Result<()> {
        if len_bytes == 0 {
            return Err(Error::Invalid("a hole of no length"));
        }
        self.clear(offset..offset.saturating_add(len_bytes), What::Everything)
    }

    /// Makes a range zeros; space that is preallocated in it stays so.
    pub(crate) fn clear_data(&self, range: Range<u64>) -> Result<()> {
        checked_end(range.start, range.end - range.start)?;
        self.clear(range, What::Data)
    }

    fn clear(&self, range: Range<u64>, what: What) -> Result<()> {
        let writer = self.writer_of_file()?;
        self.drop_capability()?;
        let sectorsize = self.core().sectorsize();
        let Range { start: offset, end } = range;
        let start = offset.checked_next_multiple_of(sectorsize).unwrap_or(end);
        let whole = start..end - end % sectorsize;
        let edges = [offset..whole.start.min(end), whole.end.max(offset)..end];
        self.clear_edges(writer, &edges)?;
        let mut at = whole.start;
        while at < whole.end {
            at = self.clear_some(writer, at..whole.end, what)?;
        }
        Ok(())
    }

    /// Makes parts of sectors zeros, and writes back what is dirty. What lies behind the end of the
    /// file is zeros already.
    fn clear_edges(&self, writer: &Writer, edges: &[Range<u64>]) -> Result<()> {
        let (live, core) = (self.live_inode()?, self.core());
        let sectorsize = core.sectorsize();
        let sectors = edges.iter().filter(|edge| !edge.is_empty()).count() as u64;
        let reservation = writer.reserve_to_delete(sectors * sectorsize, 4)?;
        let change = FileChange::start(self.core(), self.subvolume().live()?, [live], reservation)?;
        let mut file = change.lock(live);
        file.check_may_cut()?;
        file.absorb_reservation();
        let size_bytes = file.size_bytes;
        let parts = edges.iter().map(|edge| edge.start..edge.end.min(size_bytes));
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let need = |part: &Range<u64>| Need::IfData(part.start - part.start % sectorsize);
        self.load(&mut file, &parts.iter().map(need).collect::<Vec<_>>())?;
        for part in parts {
            self.zero(&mut file, part);
        }
        file.touch(change.handle().generation(), true);
        file.note_dirty()?;
        write_back(&mut file)?;
        drop(file);
        change.end()
    }

    /// Takes the first extents in `range`, whole sectors, out of the file. Returns where the rest of
    /// the range begins.
    fn clear_some(&self, writer: &Writer, range: Range<u64>, what: What) -> Result<u64> {
        let (live, core) = (self.live_inode()?, self.core());
        let reservation = writer.reserve_to_delete(0, 4)?;
        let change = FileChange::start(self.core(), self.subvolume().live()?, [live], reservation)?;
        let mut file = change.lock(live);
        file.check_may_cut()?;
        let _alone = file.exclude_readers();
        let extents = file.extents();
        let has_hole_items = !core.volume().superblock().has_incompat(IncompatFlags::NO_HOLES);
        let end_of_file = file.item.size.get().next_multiple_of(core.sectorsize());
        let until = file.apply(|file| {
            let Dropped { counted_bytes, until } = match what {
                What::Everything => extents.drop_some(range.start, range.end, EXTENTS_PER_STEP)?,
                What::Data => extents.drop_data(range.start, range.end, EXTENTS_PER_STEP)?,
            };
            if has_hole_items {
                extents.fill_holes(range.start, until.min(end_of_file))?;
            }
            file.item.nbytes = file.item.nbytes.get().saturating_sub(counted_bytes).into();
            file.touch(change.handle().generation(), true);
            live.put_item(file)?;
            Ok(until)
        })?;
        drop(file);
        change.end()?;
        Ok(until)
    }
}

impl FileExtents<'_> {
    /// As [`drop_some`](Self::drop_some), but leaves what is preallocated.
    fn drop_data(&self, start: u64, end: u64, most: usize) -> Changed<Dropped> {
        let Stretch { extents, until } = self.stretch(start, end, most)?;
        let mut counted_bytes = 0;
        for (from, stored) in extents {
            if !stored.is_preallocated() {
                let to = from + self.covered_bytes(&stored);
                counted_bytes += self.drop_range(from.max(start), to.min(until))?;
            }
        }
        Ok(Dropped { counted_bytes, until })
    }
}
