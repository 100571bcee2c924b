//! How data is written that does not say so itself.

use larder_format::item::InodeFlags;

use crate::inode::metadata::FileType;

/// How new files are written: the kernel's mount options of these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePolicy {
    /// Data is written to new places. Without it, new files are overwritten in place, have no checksums and are
    /// not compressed.
    pub datacow: bool,
    /// Data has checksums. Without it, new files have none.
    pub datasum: bool,
    /// What takes no more bytes than this, compressed or not, and is less than a sector, is kept in the tree.
    pub max_inline_bytes: u64,
}

impl Default for WritePolicy {
    fn default() -> Self {
        Self { datacow: true, datasum: true, max_inline_bytes: 2048 }
    }
}

impl WritePolicy {
    /// The flags that a new inode has by this, besides those of its directory.
    pub(crate) fn flags_of(self, file_type: FileType) -> InodeFlags {
        let mut flags = InodeFlags::empty();
        if file_type == FileType::Regular {
            flags.set(InodeFlags::NODATACOW, !self.datacow);
            flags.set(InodeFlags::NODATASUM, !self.datacow || !self.datasum);
        }
        flags
    }
}
