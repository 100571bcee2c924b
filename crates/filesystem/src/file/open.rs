//! Regular files that are open for writing.
//!
//! # Invariants
//! - Opening decides whether a program may write to a file, and writing does not check again, as on
//!   Linux. If the inode becomes immutable or append-only later, or its subvolume read-only,
//!   earlier opens may still write. So a write cache can be written back late: no write that has
//!   succeeded for the program is refused afterwards for these reasons.

use larder_format::item::InodeFlags;

use crate::changed::apply;
use crate::error::Result;
use crate::file::write::WriteAs;
use crate::handle::file::File;
use crate::inode::attributes::SetAttributes;
use crate::item::metadata::Timestamp;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// A regular file that is open for writing: see [`File::open_for_writing`].
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub(crate) file: File,
}

impl OpenFile {
    /// Writes as [`File::write_at`] does.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EDQUOT`, and `EIO` if the rest of a sector cannot be read.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_as(data, offset, WriteAs { is_open: true, sets_times: true })
    }

    /// Writes at the end of the file, as [`write_at`](Self::write_at) does. Returns where that was.
    /// Threads that append do so one after the other.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _alone = self.file.live_inode()?.appending.lock();
        let end = self.file.len_bytes();
        self.write_at(data, end)?;
        Ok(end)
    }

    /// Makes the file `len_bytes` long as [`File::set_len`] does, also if it became immutable. This
    /// is refused if it became append-only or its subvolume read-only.
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.file.set_len_as(len_bytes, InodeFlags::APPEND)
    }

    /// Copies as [`File::copy_range`] does. If the file can share nothing any more, because it
    /// became append-only or its subvolume read-only, this copies the bytes.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), `EINVAL` for a range that overlaps itself, and `EPERM` if
    /// the file became immutable.
    pub fn copy_range(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<u64> {
        self.file.live_inode()?.read().check_mutable()?;
        let how = WriteAs { is_open: true, sets_times: true };
        self.file.copy_as(source, source_offset, len_bytes, offset, how)
    }

    /// Like [`write_at`](Self::write_at), but times and capabilities stay: the caller keeps track
    /// of them and sets them later.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_keeping_times(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_as(data, offset, WriteAs { is_open: true, sets_times: false })
    }

    /// Sets the times of modification and change, for a caller that has [written without
    /// them](Self::write_keeping_times). They belong to writes that were allowed, so this works
    /// even if the file has become immutable or append-only, or its subvolume read-only.
    ///
    /// # Errors
    /// `EINVAL` for invalid times, `ENOSPC`.
    pub fn set_times_of_writes(&self, mtime: Timestamp, ctime: Timestamp) -> Result<()> {
        let (mtime, ctime) = (Some(mtime), Some(ctime));
        let times = SetAttributes { mtime, ctime, ..SetAttributes::default() };
        times.check_times()?;
        let item = ItemReservation::changing(1);
        let (mut change, live) = InodeChange::start_on_open(self.file.changeable()?, item)?;
        let InodeChange { locked, handle, .. } = &mut change;
        let state = locked.of(live);
        state.touch(handle.generation(), false);
        times.put(&mut state.item);
        apply(handle, || live.put_item(state))?;
        change.end()
    }
}
