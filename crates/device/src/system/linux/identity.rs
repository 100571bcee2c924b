//! What is the same file or device.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The identity of a file or device, whatever its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A regular file: `st_dev` and `st_ino`.
    Regular { dev: u64, inode: u64 },
    /// A block device: `st_rdev`, whichever node leads to it.
    Block { rdev: u64 },
}

impl Identity {
    /// `None` for anything except a regular file or a block device.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let file_type = metadata.file_type();
        if file_type.is_file() {
            Some(Self::Regular { dev: metadata.dev(), inode: metadata.ino() })
        } else if file_type.is_block_device() {
            Some(Self::Block { rdev: metadata.rdev() })
        } else {
            None
        }
    }

    pub(crate) fn is_block(self) -> bool {
        matches!(self, Self::Block { .. })
    }

    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Self::of(&path.metadata().ok()?)
    }
}
