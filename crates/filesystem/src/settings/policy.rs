//! The defaults for writing data.

use larder_format::item::InodeFlags;

use crate::item::metadata::FileType;

/// How new files are written, as by the kernel's mount options of these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePolicy {
    /// Data is copied on write. Without it, new files are overwritten in place, have no checksums
    /// and are not compressed.
    pub datacow: bool,
    /// Data has checksums. Without it, new files have none.
    pub datasum: bool,
    /// Files are inline if their data, compressed or not, takes no more bytes than this and less
    /// than a sector.
    pub max_inline_bytes: u64,
}

impl Default for WritePolicy {
    fn default() -> Self {
        Self { datacow: true, datasum: true, max_inline_bytes: 2048 }
    }
}

impl WritePolicy {
    /// The flags that this adds to those that a new inode inherits.
    pub(crate) fn flags_of(self, file_type: FileType) -> InodeFlags {
        let mut flags = InodeFlags::empty();
        if file_type == FileType::Regular {
            flags.set(InodeFlags::NODATACOW, !self.datacow);
            flags.set(InodeFlags::NODATASUM, !self.datacow || !self.datasum);
        }
        flags
    }
}
