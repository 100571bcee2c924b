//! Files that were deleted.

use std::sync::Arc;

use larder_filesystem::{Filesystem, Result};
use larder_rescue::{DeletedFile, Past};

/// The deleted files that a file system still has blocks of.
#[derive(Debug)]
pub struct DeletedFiles {
    past: Past,
    cache_bytes: usize,
}

impl DeletedFiles {
    /// Those of `past`, read with so many bytes of tree blocks in memory.
    pub(crate) fn new(past: Past, cache_bytes: usize) -> Self {
        Self { past, cache_bytes }
    }

    /// The files, those that were deleted last first.
    pub fn files(&self) -> &[DeletedFile] {
        self.past.files()
    }

    /// The subvolumes that had the files, without their names, as they were in the commit of this
    /// generation and as far as their blocks are left. A file can be read where checksums of that
    /// time prove its data.
    pub fn at(&self, generation: u64) -> Result<Option<Filesystem>> {
        let Some(volume) = self.past.volume(generation)? else { return Ok(None) };
        Ok(Some(Filesystem::open(Arc::new(volume), self.cache_bytes)?))
    }
}
