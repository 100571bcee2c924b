//! Writing to a file: data waits in memory, in whole sectors, until writeback.

use std::borrow::Cow;
use std::ops::Range;

use larder_format::item::InodeFlags;

use crate::cache::dirty_space::Entrance;
use crate::cache::reservation::DataReservation;
use crate::change::changeable::Changeable;
use crate::change::file_change::FileChange;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::{Error, ErrorKind, Result};
use crate::file::open::OpenFile;
use crate::file::read_live::Need;
use crate::handle::file::File;
use crate::inode::attributes::SetAttributes;
use crate::live::inode::InodeState;
use crate::operation::data_reservation::{DataNeed, reserve_within_quota};
use crate::writeback::compression::compression_plan;
use crate::writeback::flush::{flush, flush_all};
use crate::xattr::capability::drop_capability;

/// The longest file: the largest offset that a program can name. Its last byte shares its sector
/// with a byte that no file can have, and the end of that sector is no `i64`.
pub(crate) const MOST_BYTES: u64 = i64::MAX as u64;
/// The most that is written at once; longer writes become several.
const PIECE_BYTES: usize = 1 << 20;
/// With more dirty data, a file's writer writes it back. The limit is lower with little memory.
const MOST_DIRTY_BYTES: u64 = 16 << 20;
/// With more runs of dirty data, a file's writer writes them back.
const MOST_DIRTY_RUNS: usize = 64;
/// The part of the memory for dirty data that one file may have.
const PART_OF_ONE_FILE: u64 = 4;

/// What a write checks, and what it changes besides data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteAs {
    /// The file was opened for writing: that decided whether it may be written to.
    pub(crate) is_open: bool,
    /// Times become now, and capabilities go.
    pub(crate) sets_times: bool,
}

/// Space on devices and in memory for data that is about to be written.
pub(crate) struct WriteSpace<'c> {
    reservation: DataReservation,
    entrance: Entrance<'c>,
}

impl<'c> WriteSpace<'c> {
    /// Waits for memory for `bytes`, whole sectors, for which space on devices is reserved.
    fn enter(core: &'c Core, bytes: u64, reservation: DataReservation) -> Result<Self> {
        let entrance = core.writer()?.dirty.space().enter(bytes, || flush_all(core))?;
        Ok(Self { reservation, entrance })
    }

    /// Takes space for the first data of a file in `subvolume`.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`.
    pub(crate) fn for_new(core: &'c Core, subvolume: u64, data: &[u8]) -> Result<Self> {
        let bytes = (data.len() as u64).next_multiple_of(core.sectorsize());
        Self::enter(
            core,
            bytes,
            reserve_within_quota(core, subvolume, DataNeed::of_data(bytes, 1))?,
        )
    }
}

impl File {
    /// Opens the file for writing. This decides whether it may be written to; `appends` says that
    /// all writes go to its end. Later changes of the inode and the subvolume do not matter.
    ///
    /// # Errors
    /// `EROFS` in a read-only subvolume, and `EPERM` for a file
    /// that is immutable, or append-only unless `appends`.
    pub fn open_for_writing(&self, appends: bool) -> Result<OpenFile> {
        let writer = self.writer()?;
        let handle = writer.manager.join()?;
        self.subvolume().live()?.check_writable()?;
        self.live_inode()?.read().check_may_open(appends)?;
        handle.end()?;
        Ok(OpenFile { file: self.clone() })
    }

    /// Replaces all content of this regular file, and its times, in one step, if the old and the
    /// new content are inline. Returns whether they were: if not, at most its capabilities are
    /// gone, and [`write_at`](Self::write_at) and others do it.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). After an error content and times are unchanged.
    #[doc(hidden)]
    pub fn rewrite(&self, content: &[u8], times: &SetAttributes) -> Result<bool> {
        let target = self.changeable()?;
        let Changeable { core, writer, live, .. } = target;
        times.check_times()?;
        let len_bytes = content.len() as u64;
        if content.is_empty() || len_bytes > core.most_inline_bytes() || !times.are_times() {
            return Ok(false);
        }
        drop_capability(self)?;
        let need = DataNeed::of_data(0, 1);
        let reservation = reserve_within_quota(self.core(), self.subvolume().id(), need)?;
        let change = FileChange::start(target, reservation)?;
        let mut file = change.lock(live);
        let _alone = file.exclude_readers();
        file.check_may_cut()?;
        let extents = file.extents();
        let sectorsize = core.sectorsize();
        if !file.pages.is_clean()
            || file.size_bytes > sectorsize
            || file.item.flags().contains(InodeFlags::NODATACOW)
            || compression_plan(writer, live, &file)?.is_some()
            || extents.has_any_from(sectorsize)?
        {
            return Ok(false);
        }
        file.apply(|file| {
            let dropped_bytes = extents.drop_range(0, sectorsize)?;
            extents.insert_inline(content, len_bytes, None)?;
            file.touch(change.handle().generation(), true);
            file.size_bytes = len_bytes;
            let nbytes = file.item.nbytes.get().saturating_sub(dropped_bytes) + len_bytes;
            (file.item.size, file.item.nbytes) = (len_bytes.into(), nbytes.into());
            times.put(&mut file.item);
            live.write_items(file)
        })?;
        drop(file);
        change.end()?;
        Ok(true)
    }

    /// Writes all of `data` from `offset` on; a gap between the end of the file and `offset` reads
    /// as zeros. Readers see the data at once, and it is durable after a sync. A program loses its
    /// capabilities by any change of its content.
    ///
    /// # Errors
    /// `EFBIG`, `EPERM`, `EROFS`, `ENOSPC`, `EDQUOT`, and `EIO`
    /// if the rest of a sector cannot be read. After an error a first part of `data` may have been
    /// written.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_as(data, offset, WriteAs { is_open: false, sets_times: true })
    }

    pub(crate) fn write_as(&self, data: &[u8], offset: u64, how: WriteAs) -> Result<()> {
        let writer = self.writer()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MOST_BYTES);
        let mut at = offset;
        end.ok_or(Error::FileTooLarge)?;
        if how.sets_times && !data.is_empty() {
            drop_capability(self)?;
        }
        for piece in data.chunks(PIECE_BYTES) {
            self.write_piece(writer, piece, at, how)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_piece(&self, writer: &Writer, data: &[u8], offset: u64, how: WriteAs) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let sectorsize = self.core().sectorsize();
        let first = offset - offset % sectorsize;
        let behind = (offset + data.len() as u64).next_multiple_of(sectorsize);
        let reservation = self.reserve_for_write(writer, first..behind)?;
        let space = WriteSpace::enter(self.core(), behind - first, reservation)?;
        self.write_in(space, data.into(), offset, how)
    }

    /// Writes one piece in the space that was taken for it.
    pub(crate) fn write_in(
        &self,
        space: WriteSpace<'_>,
        data: Cow<'_, [u8]>,
        offset: u64,
        how: WriteAs,
    ) -> Result<()> {
        let writer = self.writer()?;
        let WriteSpace { reservation, entrance } = space;
        let live = self.live_inode()?;
        let core = self.core();
        let sectorsize = core.sectorsize();
        let end = offset + data.len() as u64;
        let first = offset - offset % sectorsize;
        let behind = end.next_multiple_of(sectorsize);
        let change = FileChange::start_writing(core, live, reservation)?;
        let mut file = change.lock(live);
        if !how.is_open {
            self.subvolume().live()?.check_writable()?;
            file.check_may_write(offset)?;
        }
        file.absorb_reservation();
        let old = file.size_bytes;
        match data {
            Cow::Owned(data) if offset == 0 && old == 0 && file.pages.is_clean() => {
                file.pages.adopt(data, sectorsize);
            }
            data => {
                let is_in_part = |at: u64| !at.is_multiple_of(sectorsize);
                let mut needs = vec![Need::IfInline];
                needs.extend(is_in_part(offset).then_some(Need::Sector(first)));
                needs.extend(is_in_part(end).then(|| Need::Sector(behind - sectorsize)));
                needs.extend(if offset > old { self.need_of_end(old) } else { None });
                self.load(&mut file, &needs)?;
                if offset > old {
                    self.zero_behind(&mut file, old);
                }
                file.pages.write(offset, &data, sectorsize);
            }
        }
        file.size_bytes = file.size_bytes.max(end);
        if how.sets_times {
            file.item.mtime = larder_device::now().into();
            file.item.ctime = file.item.mtime;
        }
        file.shrink_reservation(writer);
        let most_bytes = MOST_DIRTY_BYTES.min(writer.dirty.space().most_bytes() / PART_OF_ONE_FILE);
        let is_much =
            file.pages.dirty_bytes() > most_bytes || file.pages.run_count() > MOST_DIRTY_RUNS;
        file.note_dirty();
        drop(entrance);
        drop(file);
        change.end()?;
        if is_much { flush(core, live) } else { Ok(()) }
    }

    /// Reserves space for writing `range`, whole sectors. The sectors that the file begins and ends
    /// with now may become dirty too.
    fn reserve_for_write(&self, writer: &Writer, range: Range<u64>) -> Result<DataReservation> {
        let sectorsize = self.core().sectorsize();
        let is_full =
            |error: &Error| matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::QuotaExceeded);
        let need = DataNeed::of_data(range.end - range.start + 2 * sectorsize, 3);
        match reserve_within_quota(self.core(), self.subvolume().id(), need) {
            Err(error) if is_full(&error) && self.has_room(writer, range)? => {
                writer.reserve_data(DataNeed::of_data(0, 3))
            }
            reservation => reservation,
        }
    }

    /// Whether writing `range`, whole sectors, needs no new space: the file has space for it, and
    /// for all sectors that become dirty with it.
    fn has_room(&self, writer: &Writer, range: Range<u64>) -> Result<bool> {
        let handle = writer.manager.join()?;
        let state = self.live_inode()?.read();
        let extents = self.extents_in(&handle)?;
        let sectorsize = self.core().sectorsize();
        let last_sector = state.size_bytes - state.size_bytes % sectorsize;
        let mut needed = vec![range.clone()];
        if state.size_bytes < range.start && last_sector < state.size_bytes {
            needed.push(last_sector..last_sector + sectorsize);
        }
        if state.size_bytes > 0 && state.size_bytes <= sectorsize {
            needed.push(0..sectorsize);
        }
        for range in needed {
            let targets = extents.targets(state.pages.cut(), state.item.flags(), range)?;
            if targets.iter().any(|target| target.place.is_none()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl InodeState {
    pub(crate) fn check_may_write(&self, offset: u64) -> Result<()> {
        if self.item.flags().contains(InodeFlags::APPEND) && offset < self.size_bytes {
            return Err(Error::NotPermitted("it can only grow"));
        }
        self.check_mutable()
    }

    pub(crate) fn check_may_cut(&self) -> Result<()> {
        self.check_none_of(InodeFlags::APPEND | InodeFlags::IMMUTABLE)
    }

    pub(crate) fn check_none_of(&self, refused: InodeFlags) -> Result<()> {
        if self.item.flags().intersects(refused) {
            return Err(Error::NotPermitted("it is immutable or can only grow"));
        }
        Ok(())
    }

    /// Whether the file with this data can be opened for writing.
    pub(crate) fn check_may_open(&self, appends: bool) -> Result<()> {
        if self.item.flags().contains(InodeFlags::APPEND) && !appends {
            return Err(Error::NotPermitted("it can only grow, and was not opened to append"));
        }
        self.check_mutable()
    }
}
