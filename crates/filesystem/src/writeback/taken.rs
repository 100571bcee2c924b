//! A writeback of a file, and the state of the file when it began.

use larder_format::item::InodeFlags;

use crate::cache::page_cache::Writeback;
use crate::live::inode::InodeState;

/// A writeback in progress, and the state of the file when it began.
pub(crate) struct Taken {
    pub(crate) writeback: Writeback,
    pub(crate) size_bytes: u64,
    pub(crate) flags: InodeFlags,
}

impl InodeState {
    /// Begins to write the dirty data back.
    pub(crate) fn take(&mut self) -> Taken {
        Taken {
            writeback: self.pages.begin_writeback(),
            size_bytes: self.size_bytes,
            flags: self.item.flags(),
        }
    }

    /// Notes in the item that the trees have the data of a file of this size.
    pub(crate) fn note_written(&mut self, generation: u64, nbytes: u64, size_bytes: u64) {
        self.item.nbytes = nbytes.into();
        self.item.size = size_bytes.into();
        self.item.transid = generation.into();
        self.item.sequence += 1;
    }
}
