//! Files that were deleted.

use std::path::Path;
use std::sync::Arc;

use larder_filesystem::{Filesystem, Result};
use larder_rescue::{DeletedFile, Past};

use crate::open::{OpenOptions, open_error};

/// The deleted files that a file system still has blocks of.
#[derive(Debug)]
pub struct DeletedFiles {
    past: Past,
    cache_bytes: usize,
}

impl OpenOptions {
    /// Finds the deleted files of the file system at `paths`, by reading all metadata on its devices
    /// once. Nothing may write there meanwhile.
    pub fn find_deleted<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<DeletedFiles> {
        let past = Past::find(self.devices(paths)?, &self.tell_search()).map_err(open_error)?;
        Ok(DeletedFiles { past, cache_bytes: self.cache_bytes })
    }
}

impl DeletedFiles {
    /// The files, those that were deleted last first.
    pub fn files(&self) -> &[DeletedFile] {
        self.past.files()
    }

    /// The subvolumes that had the files, without their names, as they were in the commit of this
    /// generation and as far as their blocks are left. A file can be read where checksums of that
    /// time prove its data.
    pub fn at(&self, generation: u64) -> Result<Option<Filesystem>> {
        let Some(volume) = self.past.volume(generation).map_err(open_error)? else {
            return Ok(None);
        };
        Ok(Some(Filesystem::open(Arc::new(volume), self.cache_bytes)?))
    }
}
