//! Finding data and holes, as `SEEK_DATA` and `SEEK_HOLE` do: what is preallocated counts as a hole,
//! and there is a hole at the end of every file.

use larder_format::FileOffset;

use crate::error::{Error, Result};
use crate::inode::handle::Inode;

impl Inode {
    /// The first offset at or behind `offset` where the file has data.
    ///
    /// [`Error::NoSuchPosition`] if there is no more.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, true)?.ok_or(Error::NoSuchPosition)
    }

    /// The first offset at or behind `offset` where the file has a hole.
    ///
    /// [`Error::NoSuchPosition`] if `offset` is at or behind the end of the file.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.seek(offset, false)?.unwrap_or(self.size_bytes()))
    }

    fn seek(&self, offset: u64, for_data: bool) -> Result<Option<u64>> {
        let size_bytes = self.size_bytes();
        if offset >= size_bytes {
            return Err(Error::NoSuchPosition);
        }
        for extent in self.extents_from(FileOffset(offset))? {
            let extent = extent?;
            if extent.start.0 >= size_bytes {
                break;
            }
            if extent.is_data() == for_data {
                return Ok(Some(extent.start.0.max(offset)));
            }
        }
        Ok(None)
    }
}
