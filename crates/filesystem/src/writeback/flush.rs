//! Writeback: data goes to the devices, then the trees learn where it is.

use std::sync::Arc;

use larder_format::compression::Algorithm;
use larder_format::feature::IncompatFlags;
use larder_format::item::InodeFlags;

use crate::change::file_change::{FileChange, LockedFile};
use crate::change::locks::KeepsExtents;
use crate::changed::Changed;
use crate::compression::compress::Plan;
use crate::core::shared::Core;
use crate::error::Result;
use crate::extents::items::FileExtents;
use crate::live::inode::{InodeState, LiveInode};
use crate::writeback::compression::compression_plan;
use crate::writeback::write_data::{WrittenData, write_data};

/// All data of a file, as it is stored inline.
struct Inline {
    stored: Vec<u8>,
    compression: Option<Algorithm>,
}

/// Writes back the dirty data of all files, with several threads if there are many. Goes on after
/// an error, and returns the first.
pub(crate) fn flush_all(core: &Core) -> Result<()> {
    larder_parallel::in_stretches(&core.writer()?.dirty.all(), |live| flush(core, live))
}

/// Writes back the dirty data of a file: data from before this call is in the running transaction
/// afterwards.
pub(crate) fn flush(core: &Core, live: &Arc<LiveInode>) -> Result<()> {
    let writer = core.writer()?;
    let change = FileChange::start_flushing(core, live)?;
    let mut file = change.lock(live);
    if file.pages.is_clean() {
        return Ok(());
    }
    if live.opens.is_abandoned() {
        file.pages.forget();
        writer.dirty.update(live, &file);
        return Ok(());
    }
    write_back(&mut file)?;
    drop(file);
    change.end()
}

/// Writes back the data of a file. Its state is not locked during device I/O: unless the caller
/// also keeps the data of the file, there may be dirty data again when this returns. After an error
/// nothing has changed.
pub(crate) fn write_back<L: KeepsExtents>(file: &mut LockedFile<'_, '_, L>) -> Result<()> {
    let core = file.core();
    let plan = compression_plan(file.writer(), file.live(), file)?;
    if let Some(plan) = &plan {
        file.writer().note_compression(plan.algorithm().name().as_bytes());
    }
    if is_short(core, file) {
        let _alone = file.exclude_readers();
        if let Some(inline) = inline_data(file, plan.as_ref())? {
            return enter_inline(file, &inline);
        }
    }
    write_back_extents(file, plan.as_ref())
}

fn write_back_extents<L: KeepsExtents>(
    file: &mut LockedFile<'_, '_, L>,
    plan: Option<&Plan>,
) -> Result<()> {
    let (core, writer) = (file.core(), file.writer());
    let (live, handle) = (file.live(), file.handle());
    let extents = file.extents();
    let taken = file.take();
    let (outcome, _alone) = file.unlocked(|| {
        let outcome = write_data(core, writer, &extents, &taken, plan);
        (outcome, live.reading.write())
    });
    let WrittenData { written, gives_up } = match outcome {
        Ok(data) => data,
        Err(error) => {
            file.pages.put_back(taken.writeback);
            return Err(error);
        }
    };
    if gives_up {
        file.item.flags = (file.item.flags() | InodeFlags::NOCOMPRESS).bits().into();
    }
    file.apply(|state| {
        let mut nbytes = state.item.nbytes.get();
        if let Some(cut) = taken.writeback.cut() {
            nbytes = nbytes.saturating_sub(extents.drop_range(cut, u64::MAX)?);
        }
        for data in &written {
            let dropped_bytes = data.enter(&extents)?;
            nbytes = nbytes.saturating_sub(dropped_bytes) + data.added_bytes();
        }
        fill_holes(core, &extents, state.item.size.get(), taken.size_bytes)?;
        state.note_written(handle.generation(), nbytes, taken.size_bytes);
        live.put_item(state)
    })?;
    file.pages.written_back(taken.writeback);
    writer.dirty.update(live, file);
    Ok(())
}

/// Stores all data of a file inline.
fn enter_inline<L: KeepsExtents>(
    file: &mut LockedFile<'_, '_, L>,
    Inline { stored, compression }: &Inline,
) -> Result<()> {
    let (core, live, handle) = (file.core(), file.live(), file.handle());
    let (extents, size_bytes) = (file.extents(), file.size_bytes);
    file.apply(|state| {
        let mut dropped_bytes = extents.drop_range(0, core.sectorsize())?;
        if let Some(cut) = state.pages.cut() {
            dropped_bytes += extents.drop_range(cut, u64::MAX)?;
        }
        extents.insert_inline(stored, size_bytes, *compression)?;
        let nbytes = state.item.nbytes.get().saturating_sub(dropped_bytes) + size_bytes;
        state.note_written(handle.generation(), nbytes, size_bytes);
        live.put_item(state)
    })?;
    file.pages.forget();
    file.writer().dirty.update(live, file);
    Ok(())
}

/// Whether all of the file's data is in one dirty sector without a place of its own: a file that is
/// overwritten in place has one, as in the kernel.
fn is_short(core: &Core, state: &InodeState) -> bool {
    let is_short = state.size_bytes > 0 && state.size_bytes <= core.sectorsize();
    let is_in_place = state.item.flags().contains(InodeFlags::NODATACOW);
    is_short && !is_in_place && state.pages.is_dirty(0, core.sectorsize())
}

/// All of the file's data, if it is to be inline: it is short, dirty, and there is no more.
fn inline_data<L>(file: &LockedFile<'_, '_, L>, plan: Option<&Plan>) -> Result<Option<Inline>> {
    let core = file.core();
    let (size_bytes, sectorsize) = (file.size_bytes, core.sectorsize());
    if !is_short(core, file) {
        return Ok(None);
    }
    let is_cut = file.pages.cut().is_some_and(|cut| cut <= sectorsize);
    if !is_cut && file.extents().has_any_from(sectorsize)? {
        return Ok(None);
    }
    let mut data = vec![0; size_bytes as usize];
    file.pages.overlay(0, &mut data);
    let sector = core.volume().sectorsize();
    let compressors = &file.writer().compressors;
    let stream = plan.and_then(|plan| plan.compress_inline(&data, sector, compressors));
    if let Some((plan, stored)) = plan.zip(stream)
        && stored.len() as u64 <= core.write_policy().max_inline_bytes
    {
        return Ok(Some(Inline { stored, compression: Some(plan.algorithm()) }));
    }
    let fits = size_bytes <= core.most_inline_bytes();
    Ok(fits.then_some(Inline { stored: data, compression: None }))
}

/// If holes have items, inserts those for the part that the file grew by.
fn fill_holes(
    core: &Core,
    extents: &FileExtents<'_>,
    old_size_bytes: u64,
    size_bytes: u64,
) -> Changed<()> {
    let has_hole_items = !core.volume().superblock().has_incompat(IncompatFlags::NO_HOLES);
    if !has_hole_items || size_bytes <= old_size_bytes {
        return Ok(());
    }
    let whole = |size_bytes: u64| size_bytes.next_multiple_of(core.sectorsize());
    extents.fill_holes(whole(old_size_bytes), whole(size_bytes))
}
