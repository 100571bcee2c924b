//! Writing data back: it is put on the devices, then the trees say where it is.

use std::sync::Arc;

use larder_format::compression::Algorithm;
use larder_format::feature::IncompatFlags;
use larder_format::item::InodeFlags;
use larder_transaction::Handle;

use crate::core::changed::{Changed, apply};
use crate::core::shared::Core;
use crate::error::Result;
use crate::file::extent_items::FileExtents;
use crate::file::writeback::compress::Plan;
use crate::file::writeback::compression::compression_plan;
use crate::file::writeback::dirty::DirtyData;
use crate::file::writeback::reservation::DataReservation;
use crate::file::writeback::write_data::WrittenData;
use crate::inode::live::{InodeState, LiveInode, StateGuard};
use crate::parallel;

/// Dirty data of a file on its way to the devices, and what the file was like when it set out.
pub(crate) struct Taken {
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) size_bytes: u64,
    /// What the tree has from there on is cut off.
    pub(crate) cut: Option<u64>,
    pub(crate) flags: InodeFlags,
    reservation: Option<DataReservation>,
}

/// All data of a file, as it is kept in the tree.
struct Inline {
    stored: Vec<u8>,
    compression: Option<Algorithm>,
}

/// Writes back what all files have in memory only, with several threads if they are many. Goes on after an error, and
/// returns the first.
pub(crate) fn flush_all(core: &Core) -> Result<()> {
    parallel::in_stretches(&core.writer()?.dirty.all(), |live| flush(core, live))
}

/// Writes back what a file has in memory only; what was written before this call is in the
/// running transaction then.
pub(crate) fn flush(core: &Core, live: &Arc<LiveInode>) -> Result<()> {
    let writer = core.writer()?;
    let _flushing = live.flushing.lock();
    // The room was promised when data became dirty: a commit that needs it must not wait for room.
    let handle = writer.manager.join()?;
    let mut state = live.write();
    if state.is_clean() {
        return Ok(());
    }
    if live.opens.is_abandoned() {
        state.clean();
        writer.dirty.update(live, &state);
        return Ok(());
    }
    core.write_back(&handle, live, &mut state)?;
    drop(state);
    Ok(handle.end()?)
}

impl Core {
    /// Writes back the data of a inode whose `flushing` the caller has. Its state is not locked while devices
    /// work: unless the caller has `changing`, too, there may be dirty data again when this returns. After
    /// an error nothing has changed.
    pub(crate) fn write_back(
        &self,
        handle: &Handle<'_>,
        live: &Arc<LiveInode>,
        state: &mut StateGuard<'_>,
    ) -> Result<()> {
        let plan = compression_plan(self, live, state)?;
        if let Some(plan) = &plan {
            self.writer()?.note_compression(plan.algorithm().name().as_bytes());
        }
        if self.is_short(state) {
            let _alone = live.exclude_readers(state);
            let extents = FileExtents::of(live, handle, self.sectorsize());
            if let Some(inline) = self.inline_data(&extents, state, plan.as_ref())? {
                return self.enter_inline(&extents, live, state, &inline);
            }
        }
        self.write_back_extents(handle, live, state, plan.as_ref())
    }

    fn write_back_extents(
        &self,
        handle: &Handle<'_>,
        live: &Arc<LiveInode>,
        state: &mut StateGuard<'_>,
        plan: Option<&Plan>,
    ) -> Result<()> {
        let extents = FileExtents::of(live, handle, self.sectorsize());
        let taken = state.take();
        let (outcome, _alone) = StateGuard::unlocked(state, || {
            let outcome = self.write_data(&extents, &taken, plan);
            (outcome, live.reading.write())
        });
        let WrittenData { written, gives_up } = match outcome {
            Ok(data) => data,
            Err(error) => {
                state.put_back(taken);
                return Err(error);
            }
        };
        if gives_up {
            state.item.flags = (state.item.flags() | InodeFlags::NOCOMPRESS).bits().into();
        }
        apply(handle, || {
            let mut nbytes = state.item.nbytes.get();
            if let Some(cut) = taken.cut {
                nbytes = nbytes.saturating_sub(extents.drop_range(cut, u64::MAX)?);
            }
            for data in &written {
                let dropped_bytes = data.enter(&extents)?;
                nbytes = nbytes.saturating_sub(dropped_bytes) + data.added_bytes();
            }
            self.fill_holes(&extents, state.item.size.get(), taken.size_bytes)?;
            state.written_back(handle.generation(), nbytes, taken.size_bytes);
            live.put_item(state)
        })?;
        self.writer()?.dirty.update(live, state);
        Ok(())
    }

    /// Puts all data of a file in the tree.
    fn enter_inline(
        &self,
        extents: &FileExtents<'_>,
        live: &Arc<LiveInode>,
        state: &mut InodeState,
        Inline { stored, compression }: &Inline,
    ) -> Result<()> {
        let (handle, size_bytes) = (extents.handle, state.size_bytes);
        apply(handle, || {
            let mut dropped_bytes = extents.drop_range(0, self.sectorsize())?;
            if let Some(cut) = state.cut {
                dropped_bytes += extents.drop_range(cut, u64::MAX)?;
            }
            extents.insert_inline(stored, size_bytes, *compression)?;
            let nbytes = state.item.nbytes.get().saturating_sub(dropped_bytes) + size_bytes;
            state.written_back(handle.generation(), nbytes, size_bytes);
            live.put_item(state)
        })?;
        state.clean();
        self.writer()?.dirty.update(live, state);
        Ok(())
    }

    /// Whether all of the file's data is in one sector that is dirty, and has no place of its own: what is
    /// overwritten in place has one, as in the kernel.
    fn is_short(&self, state: &InodeState) -> bool {
        let is_short = state.size_bytes > 0 && state.size_bytes <= self.sectorsize();
        let is_in_place = state.item.flags().contains(InodeFlags::NODATACOW);
        is_short && !is_in_place && state.dirty.covers(0, self.sectorsize())
    }

    /// All of the file's data, if it is to be in the tree: it is short, dirty, and there is no more.
    fn inline_data(
        &self,
        extents: &FileExtents<'_>,
        state: &InodeState,
        plan: Option<&Plan>,
    ) -> Result<Option<Inline>> {
        let (size_bytes, sectorsize) = (state.size_bytes, self.sectorsize());
        if !self.is_short(state) {
            return Ok(None);
        }
        let is_cut = state.cut.is_some_and(|cut| cut <= sectorsize);
        if !is_cut && extents.has_any_from(sectorsize)? {
            return Ok(None);
        }
        let mut data = vec![0; size_bytes as usize];
        state.dirty.overlay(0, &mut data);
        let sector = self.volume().sectorsize();
        let stream = plan.and_then(|plan| plan.compress_inline(&data, sector));
        if let Some((plan, stored)) = plan.zip(stream)
            && stored.len() as u64 <= self.write_policy().max_inline_bytes
        {
            return Ok(Some(Inline { stored, compression: Some(plan.algorithm()) }));
        }
        let fits = size_bytes <= self.most_inline_bytes();
        Ok(fits.then_some(Inline { stored: data, compression: None }))
    }

    /// Where holes have items, enters those of what the file grew by.
    fn fill_holes(
        &self,
        extents: &FileExtents<'_>,
        old_size_bytes: u64,
        size_bytes: u64,
    ) -> Changed<()> {
        let has_hole_items = !self.volume().superblock().has_incompat(IncompatFlags::NO_HOLES);
        if !has_hole_items || size_bytes <= old_size_bytes {
            return Ok(());
        }
        let whole = |size_bytes: u64| size_bytes.next_multiple_of(self.sectorsize());
        extents.fill_holes(whole(old_size_bytes), whole(size_bytes))
    }
}

impl InodeState {
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.writing.is_none() && self.cut.is_none()
    }

    /// Takes the dirty data out, to be written back. It is read from `writing` until the trees have it.
    fn take(&mut self) -> Taken {
        let dirty = Arc::new(std::mem::take(&mut self.dirty));
        debug_assert!(self.writing.is_none(), "one at a time writes back");
        self.writing = Some(dirty.clone());
        Taken {
            dirty,
            size_bytes: self.size_bytes,
            cut: self.cut,
            flags: self.item.flags(),
            reservation: self.reservation.take(),
        }
    }

    /// Makes dirty again what could not be written.
    fn put_back(&mut self, taken: Taken) {
        self.writing = None;
        let older = Arc::into_inner(taken.dirty).expect("it is shared with the state only");
        self.dirty.add_older(older);
        if let Some(reservation) = taken.reservation {
            self.absorb(reservation);
        }
    }

    /// The tree has what was taken, of a file of this size then.
    fn written_back(&mut self, generation: u64, nbytes: u64, size_bytes: u64) {
        self.writing = None;
        self.cut = None;
        self.item.nbytes = nbytes.into();
        self.item.size = size_bytes.into();
        self.item.transid = generation.into();
        self.item.sequence += 1;
    }

    /// Forgets what is not written back.
    pub(crate) fn clean(&mut self) {
        self.dirty = DirtyData::default();
        self.cut = None;
        self.reservation = None;
    }
}
