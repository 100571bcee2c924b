//! Regular files that are open for writing.
//!
//! # Invariants
//! - Opening decides whether a file may be written to, and writing does not ask again. That is how Linux does it: an
//!   inode that becomes immutable or append-only, and a subvolume that becomes read-only, stop those who open, not
//!   those who have opened. So no write that a program was told of can be refused later for these reasons, however
//!   long a cache holds it back.

use larder_format::item::InodeFlags;

use crate::error::Result;
use crate::file::handle::File;
use crate::file::write::WriteAs;
use crate::inode::handle::Inode;

/// A regular file that is open for writing.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub(super) inode: Inode,
}

impl OpenFile {
    fn file(&self) -> File<'_> {
        File { inode: &self.inode }
    }

    /// Writes as [`File::write_at`] does.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EDQUOT`, and `EIO` if what shares a sector with the data cannot be read.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file().write_as(data, offset, WriteAs { is_open: true, sets_times: true })
    }

    /// Makes the file `size_bytes` long, as [`File::truncate`] does. What became append-only does not allow that,
    /// nor does a subvolume that became read-only.
    ///
    /// # Errors
    /// As [`File::truncate`].
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.file().truncate_as(size_bytes, InodeFlags::APPEND)
    }

    /// Copies as [`File::copy_range`] does. If the file can share nothing any more, because it became append-only or
    /// its subvolume read-only, this copies the bytes.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), `EINVAL` for a range that overlaps itself, and `EPERM` if
    /// the file became immutable.
    pub fn copy_range(
        &self,
        source: File<'_>,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<u64> {
        self.inode.live_inode()?.read().check_mutable()?;
        let how = WriteAs { is_open: true, sets_times: true };
        self.file().copy_as(source, source_offset, len_bytes, offset, how)
    }

    /// As [`write_at`](Self::write_at), but times and capabilities stay as they are: for a caller who keeps
    /// track of them and sets them later.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_keeping_times(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file().write_as(data, offset, WriteAs { is_open: true, sets_times: false })
    }
}
