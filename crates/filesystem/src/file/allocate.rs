//! Preallocated space, which reads as zeros until it is written, and holes.

use std::ops::Range;

use larder_format::item::{FileExtentKind, InodeFlags, MAX_EXTENT_BYTES};
use larder_transaction::space::{Priority, Reservation, SpaceKind};
use larder_transaction::{DataExtent, Handle, QuotaReservation};

use crate::change::changeable::Changeable;
use crate::change::file_change::{FileChange, StillFile};
use crate::changed::Changed;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::extents::items::FileExtents;
use crate::file::punch::{What, clear};
use crate::file::read_live::Need;
use crate::file::write::MOST_BYTES;
use crate::handle::file::File;
use crate::operation::data_reservation::{DataNeed, QUOTA_BLOCKS};
use crate::operation::limits::reserve_quota;
use crate::writeback::flush::{flush, write_back};
use crate::xattr::capability::drop_capability;

/// New extents in one transaction.
const EXTENTS_PER_STEP: usize = 16;
/// Extents in one step of a transaction.
const EXTENTS_LOOKED_AT: usize = 256;

/// What happens to the size of a file that is allocated after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// It grows to the end of the range.
    Grow,
    /// It stays the same.
    KeepSize,
}

/// The reservation for data that is allocated.
struct Reserved {
    data: Reservation,
    /// Within the quota of quota groups.
    quota: Option<QuotaReservation>,
}

impl File {
    /// Allocates space for `len_bytes` from `offset` on in the regular file: writing there needs no
    /// new space, as long as no other file shares it. Data that is there stays; the rest reads as
    /// zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` if `len_bytes` is 0. After `ENOSPC` a part may
    /// have been allocated.
    pub fn allocate(&self, offset: u64, len_bytes: u64, mode: AllocateMode) -> Result<()> {
        let writer = self.writer()?;
        let end = checked_end(offset, len_bytes)?;
        drop_capability(self)?;
        let live = self.live_inode()?;
        let core = self.core();
        let sectorsize = core.sectorsize();
        flush(core, live)?;
        let range = offset - offset % sectorsize..end.next_multiple_of(sectorsize);
        // All of it at once, so that too little space is found before any is taken.
        let mut reserved = self.reserve_extents(writer, self.hole_bytes(writer, range.clone())?)?;
        let mut at = range.start;
        while at < range.end {
            if reserved.data.len_bytes() == 0 {
                reserved = self.reserve_extents(writer, (range.end - at).min(MAX_EXTENT_BYTES))?;
            }
            at = self.allocate_some(writer, &mut reserved, at..range.end)?;
        }
        match mode {
            AllocateMode::Grow => self.grow(writer, end),
            AllocateMode::KeepSize => Ok(()),
        }
    }

    /// Punches a hole of `len_bytes` from `offset` on into the regular file: the range reads as
    /// zeros, and whole sectors in it take no space any more. The size stays.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` if `len_bytes` is 0. After an error or a
    /// crash, a part may be a hole.
    pub fn punch_hole(&self, offset: u64, len_bytes: u64) -> Result<()> {
        if len_bytes == 0 {
            return Err(Error::Invalid("a hole of no length"));
        }
        clear(self, offset..offset.saturating_add(len_bytes), What::Everything)
    }

    /// Zeroes a range; preallocated space in it stays.
    fn clear_data(&self, range: Range<u64>) -> Result<()> {
        checked_end(range.start, range.end - range.start)?;
        clear(self, range, What::Data)
    }

    /// Zeroes `len_bytes` of the regular file from `offset` on, and allocates space for them as
    /// [`allocate`](Self::allocate) does.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn zero_range(&self, offset: u64, len_bytes: u64, mode: AllocateMode) -> Result<()> {
        let end = checked_end(offset, len_bytes)?;
        self.clear_data(offset..end)?;
        self.allocate(offset, len_bytes, mode)
    }

    /// Reserves space for data that is allocated.
    fn reserve_extents(&self, writer: &Writer, len_bytes: u64) -> Result<Reserved> {
        let quota = reserve_quota(self.core(), self.subvolume().id(), len_bytes, QUOTA_BLOCKS)?;
        let data = writer.manager.reserve(SpaceKind::Data, len_bytes, Priority::Normal)?;
        Ok(Reserved { data, quota })
    }

    /// How much of `range` is holes, in bytes.
    fn hole_bytes(&self, writer: &Writer, range: Range<u64>) -> Result<u64> {
        let handle = writer.manager.join()?;
        let state = self.live_inode()?.read();
        let extents = self.extents_in(&handle)?;
        let (mut at, mut hole_bytes) = (range.start, 0);
        while at < range.end {
            let (holes, until) = extents.holes(at, range.end, EXTENTS_LOOKED_AT)?;
            hole_bytes += holes.iter().map(|hole| hole.end - hole.start).sum::<u64>();
            at = until;
        }
        drop(state);
        Ok(hole_bytes)
    }

    /// Allocates space for the first holes in `range`, as much as `room` has. Returns the start of
    /// the rest of the range.
    fn allocate_some(
        &self,
        writer: &Writer,
        reserved: &mut Reserved,
        range: Range<u64>,
    ) -> Result<u64> {
        let target = self.changeable()?;
        let Changeable { core, live, .. } = target;
        let sectorsize = core.sectorsize();
        // Inline data gets a sector.
        let is_short = |size_bytes| (1..=sectorsize).contains(&size_bytes);
        let was_short = is_short(self.size_bytes());
        let data_bytes = if was_short { sectorsize } else { 0 };
        let most = EXTENTS_PER_STEP as u64;
        // Holes may have items, which are cut.
        let need =
            DataNeed { extents: 2 * most, references: most, ..DataNeed::of_data(data_bytes, 1) };
        let reservation = writer.reserve_data(need)?;
        let change = FileChange::start(target, reservation)?;
        let mut file = change.lock(live);
        file.check_mutable()?;
        if is_short(file.size_bytes) && !was_short {
            // It became inline meanwhile.
            return Ok(range.start);
        }
        file.absorb_reservation();
        if range.end > sectorsize {
            self.load(&mut file, &[Need::IfInline])?;
        }
        let alone = file.exclude_readers();
        let extents = file.extents();
        let (holes, until) = extents.holes(range.start, range.end, EXTENTS_LOOKED_AT)?;
        let (taken, until) = take_space(writer, &mut reserved.data, holes, until)?;
        file.apply(|_| {
            for (start, data) in &taken {
                let hole = start + data.len_bytes;
                // If holes have items, these go.
                extents.drop_range(*start, hole)?;
                let item = extents.item(FileExtentKind::Prealloc, *data, data.len_bytes, None);
                extents.insert_new(*start, &item)?;
            }
            Ok(())
        })?;
        let taken_bytes: u64 = taken.iter().map(|(_, data)| data.len_bytes).sum();
        file.item.nbytes = (file.item.nbytes.get() + taken_bytes).into();
        let flags = file.item.flags() | InodeFlags::PREALLOC;
        file.item.flags = flags.bits().into();
        file.touch(change.handle().generation(), true);
        drop(alone);
        file.note_dirty();
        write_back(&mut file)?;
        drop(file);
        change.end()?;
        // The space that was taken is counted now.
        if let Some(quota) = &mut reserved.quota {
            let nodesize = u64::from(core.volume().nodesize());
            quota.shrink_to(reserved.data.len_bytes() + QUOTA_BLOCKS * nodesize);
        }
        Ok(until)
    }

    /// Makes the file at least `size_bytes` long.
    pub(crate) fn grow(&self, writer: &Writer, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let target = self.changeable()?;
        let Changeable { core, live, .. } = target;
        // The sector that the file ends in, if it does not end at a sector's end.
        let has_part = |size_bytes: u64| !size_bytes.is_multiple_of(core.sectorsize());
        let had_part = has_part(self.size_bytes());
        let data_bytes = if had_part { core.sectorsize() } else { 0 };
        let reservation = writer.reserve_data(DataNeed::of_data(data_bytes, 2))?;
        let change = FileChange::start(target, reservation)?;
        let mut file = change.lock(live);
        if has_part(file.size_bytes) && !had_part {
            // It became inline meanwhile.
            drop(file);
            drop(change);
            return self.grow(writer, size_bytes);
        }
        file.absorb_reservation();
        self.grow_locked(&mut file, size_bytes)?;
        file.touch(change.handle().generation(), true);
        file.note_dirty();
        write_back(&mut file)?;
        drop(file);
        change.end()
    }

    /// Makes the file, whose state this is, at least `size_bytes` long.
    pub(crate) fn grow_locked(&self, file: &mut StillFile<'_, '_>, size_bytes: u64) -> Result<()> {
        if size_bytes > file.size_bytes {
            let old = file.size_bytes;
            let mut needs = vec![Need::IfInline];
            needs.extend(self.need_of_end(old));
            self.load(file, &needs)?;
            self.zero_behind(file, old);
            file.size_bytes = size_bytes;
        }
        Ok(())
    }

    /// The extents of the file, to be changed with a handle.
    pub(crate) fn extents_in<'a>(&'a self, handle: &'a Handle<'a>) -> Result<FileExtents<'a>> {
        let (live, sectorsize) = (self.live_inode()?, self.core().sectorsize());
        Ok(FileExtents::of(live, handle, sectorsize))
    }
}

/// Takes reserved space for the first `holes`. Returns the extent for each part, and the end of the
/// last: `until` if that is all.
fn take_space(
    writer: &Writer,
    reserved: &mut Reservation,
    holes: Vec<Range<u64>>,
    until: u64,
) -> Result<(Vec<(u64, DataExtent)>, u64)> {
    let mut taken = Vec::new();
    for hole in holes {
        let mut at = hole.start;
        while at < hole.end {
            let wanted_bytes = (hole.end - at).min(reserved.len_bytes());
            if wanted_bytes == 0 || taken.len() == EXTENTS_PER_STEP {
                return Ok((taken, at));
            }
            let data = match writer.allocate_data(wanted_bytes) {
                Ok(data) => data,
                Err(error) => {
                    for (_, data) in taken {
                        writer.give_up(data)?;
                    }
                    return Err(error.into());
                }
            };
            reserved.shrink_to(reserved.len_bytes() - data.len_bytes);
            taken.push((at, data));
            at += data.len_bytes;
        }
    }
    Ok((taken, until))
}

impl FileExtents<'_> {
    /// The holes among the first `most` extents in `start..end`, and the end of the range that they
    /// cover.
    fn holes(&self, start: u64, end: u64, most: usize) -> Changed<(Vec<Range<u64>>, u64)> {
        let stretch = self.stretch(start, end, most)?;
        let (mut at, mut holes) = (start, Vec::new());
        for (from, stored) in stretch.extents.iter().filter(|(_, stored)| !stored.is_hole()) {
            if *from > at {
                holes.push(at..*from);
            }
            at = at.max(from + self.covered_bytes(stored));
        }
        if at < stretch.until {
            holes.push(at..stretch.until);
        }
        Ok((holes, stretch.until))
    }
}

/// The end of a range of a file, if it is possible.
pub(crate) fn checked_end(offset: u64, len_bytes: u64) -> Result<u64> {
    if len_bytes == 0 {
        return Err(Error::Invalid("a range of no length"));
    }
    let end = offset.checked_add(len_bytes).filter(|end| *end <= MOST_BYTES);
    end.ok_or(Error::FileTooLarge)
}
