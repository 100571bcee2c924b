//! Punching holes, in steps: a file may have any number of extents.

use std::ops::Range;

use larder_format::feature::IncompatFlags;

use crate::change::changeable::Changeable;
use crate::change::file_change::FileChange;
use crate::changed::Changed;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::extents::items::{Dropped, FileExtents, Stretch};
use crate::file::read_live::Need;
use crate::handle::file::File;
use crate::operation::data_reservation::DataNeed;
use crate::writeback::flush::write_back;
use crate::xattr::capability::drop_capability;

/// Extents that go in one transaction.
pub(crate) const EXTENTS_PER_STEP: usize = 128;

/// Extents that are cut, and holes with items.
const CUT_EXTENTS: u64 = 8;

/// Which extents of a range go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Everything,
    /// All except preallocated ones.
    Data,
}

pub(crate) fn clear(file: &File, range: Range<u64>, what: What) -> Result<()> {
    let writer = file.writer()?;
    drop_capability(file)?;
    let sectorsize = file.core().sectorsize();
    let Range { start: offset, end } = range;
    let start = offset.checked_next_multiple_of(sectorsize).unwrap_or(end);
    let whole = start..end - end % sectorsize;
    let edges = [offset..whole.start.min(end), whole.end.max(offset)..end];
    clear_edges(file, writer, &edges)?;
    let mut at = whole.start;
    while at < whole.end {
        at = clear_some(file, writer, at..whole.end, what)?;
    }
    Ok(())
}

/// Zeroes parts of sectors, and writes dirty data back. The locked file has zeros after its end
/// already.
fn clear_edges(file: &File, writer: &Writer, edges: &[Range<u64>]) -> Result<()> {
    let target = file.changeable()?;
    let Changeable { core, live, subvolume, .. } = target;
    let sectorsize = core.sectorsize();
    let sectors = edges.iter().filter(|edge| !edge.is_empty()).count() as u64;
    let need = DataNeed::of_data(sectors * sectorsize, 4);
    let reservation = writer.reserve_to_delete(need, subvolume.cut_priority())?;
    let change = FileChange::start(target, reservation)?;
    let mut locked = change.lock(live);
    locked.check_may_cut()?;
    locked.absorb_reservation();
    let size_bytes = locked.size_bytes;
    let parts = edges.iter().map(|edge| edge.start..edge.end.min(size_bytes));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let need = |part: &Range<u64>| Need::IfData(part.start - part.start % sectorsize);
    file.load(&mut locked, &parts.iter().map(need).collect::<Vec<_>>())?;
    for part in parts {
        file.zero(&mut locked, part);
    }
    locked.touch(change.handle().generation(), true);
    locked.note_dirty();
    write_back(&mut locked)?;
    drop(locked);
    change.end()
}

/// Removes the first extents in `range`, whole sectors, from the locked file. Returns the start of
/// the rest of the range.
fn clear_some(file: &File, writer: &Writer, range: Range<u64>, what: What) -> Result<u64> {
    let target = file.changeable()?;
    let Changeable { core, live, subvolume, .. } = target;
    let has_hole_items = !core.volume().superblock().has_incompat(IncompatFlags::NO_HOLES);
    let need = DataNeed { extents: CUT_EXTENTS, ..DataNeed::default() };
    let priority = subvolume.cut_priority();
    let most = writer.deletions_at_once(need, EXTENTS_PER_STEP, priority);
    let need = DataNeed { references: most as u64, ..need };
    let reservation = writer.reserve_to_delete(need, priority)?;
    let change = FileChange::start(target, reservation)?;
    let mut locked = change.lock(live);
    locked.check_may_cut()?;
    let _alone = locked.exclude_readers();
    let extents = locked.extents();
    let end_of_file = locked.item.size.get().next_multiple_of(core.sectorsize());
    let until = locked.apply(|locked| {
        let Dropped { counted_bytes, until } = match what {
            What::Everything => extents.drop_some(range.start, range.end, most)?,
            What::Data => extents.drop_data(range.start, range.end, most)?,
        };
        if has_hole_items {
            extents.fill_holes(range.start, until.min(end_of_file))?;
        }
        locked.item.nbytes = locked.item.nbytes.get().saturating_sub(counted_bytes).into();
        locked.touch(change.handle().generation(), true);
        live.put_item(locked)?;
        Ok(until)
    })?;
    drop(locked);
    change.end()?;
    Ok(until)
}

impl FileExtents<'_> {
    /// Like [`drop_some`](Self::drop_some), but leaves preallocated space.
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
