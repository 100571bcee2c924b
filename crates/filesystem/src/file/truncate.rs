//! Changing the size of a file. It is cut from the back, in steps that each leave a shorter file: a
//! file may have any number of extents, and is consistent whenever a crash comes.

use larder_format::item::InodeFlags;

use crate::change::changeable::Changeable;
use crate::change::file_change::{FileChange, StillFile};
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::file::punch::EXTENTS_PER_STEP;
use crate::file::write::MOST_BYTES;
use crate::handle::file::File;
use crate::operation::data_reservation::DataNeed;
use crate::writeback::flush::write_back;
use crate::xattr::capability::drop_capability;

impl File {
    /// Makes the file `len_bytes` long. Content after that is gone; new content reads as zeros.
    /// Meanwhile other threads may see sizes between the old and the new one.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). After an error the file may be shorter than before.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.set_len_as(len_bytes, InodeFlags::APPEND | InodeFlags::IMMUTABLE)
    }

    /// Truncates, unless the file has one of the flags `refuses`.
    pub(crate) fn set_len_as(&self, size_bytes: u64, refuses: InodeFlags) -> Result<()> {
        let writer = self.writer()?;
        if size_bytes > MOST_BYTES {
            return Err(Error::FileTooLarge);
        }
        drop_capability(self)?;
        while !self.truncate_step(writer, size_bytes, refuses)? {}
        Ok(())
    }

    /// Does one step. Returns whether the size is reached.
    fn truncate_step(&self, writer: &Writer, size_bytes: u64, refuses: InodeFlags) -> Result<bool> {
        let target = self.changeable()?;
        let Changeable { core, subvolume, live, .. } = target;
        let sectorsize = core.sectorsize();
        let shrinks = size_bytes <= self.size_bytes();
        let (reservation, most) = if shrinks {
            let data_bytes = if size_bytes.is_multiple_of(sectorsize) { 0 } else { sectorsize };
            let need = DataNeed::of_data(data_bytes, 2);
            let priority = subvolume.cut_priority();
            let most = writer.deletions_at_once(need, EXTENTS_PER_STEP, priority);
            let need = DataNeed { references: most as u64, ..need };
            (writer.reserve_to_delete(need, priority)?, most)
        } else {
            (writer.reserve_data(DataNeed::of_data(2 * sectorsize, 2))?, 0)
        };
        let change = FileChange::start(target, reservation)?;
        let mut file = change.lock(live);
        file.check_none_of(refuses)?;
        if shrinks != (size_bytes <= file.size_bytes) {
            return Ok(false);
        }
        file.absorb_reservation();
        file.touch(change.handle().generation(), true);
        let cut = size_bytes.next_multiple_of(sectorsize);
        let extents = file.extents();
        let last = if shrinks { extents.last(cut, most + 1)? } else { Vec::new() };
        let is_last_step = last.len() <= most;
        if is_last_step {
            if shrinks {
                self.cut_off(&mut file, size_bytes)?;
            } else {
                self.grow_locked(&mut file, size_bytes)?;
            }
            file.note_dirty();
            write_back(&mut file)?;
        } else {
            let end = last[most - 1].0;
            let _alone = file.exclude_readers();
            file.size_bytes = file.size_bytes.min(end);
            file.pages.truncate(end);
            file.apply(|file| {
                let dropped_bytes = extents.drop_range(end, u64::MAX)?;
                let item = &mut file.item;
                item.nbytes = item.nbytes.get().saturating_sub(dropped_bytes).into();
                item.size = item.size.get().min(end).into();
                live.put_item(file)
            })?;
            file.note_dirty();
        }
        drop(file);
        change.end()?;
        Ok(is_last_step)
    }

    /// Cuts the file, whose state this is, to `size_bytes`. Its extents follow at writeback.
    fn cut_off(&self, file: &mut StillFile<'_, '_>, size_bytes: u64) -> Result<()> {
        let sectorsize = self.core().sectorsize();
        let cut = size_bytes.next_multiple_of(sectorsize);
        if size_bytes < file.size_bytes {
            let needs: Vec<_> = self.need_of_end(size_bytes).into_iter().collect();
            self.load(file, &needs)?;
            self.zero_behind(file, size_bytes);
        }
        file.pages.cut_off(cut);
        file.size_bytes = size_bytes;
        Ok(())
    }
}
