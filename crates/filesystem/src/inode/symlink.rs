//! Symbolic links: the target is the link's only, inline extent.

use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;

/// The longest target in bytes (`PATH_MAX` without its end).
const TARGET_MAX_BYTES: u64 = 4095;

impl Inode {
    /// Where the symbolic link points, as it was made.
    pub fn link_target(&self) -> Result<Vec<u8>> {
        if self.file_type() != FileType::Symlink {
            return Err(Error::NotASymlink);
        }
        let len_bytes = self.size_bytes().min(TARGET_MAX_BYTES);
        let mut target = vec![0; len_bytes as usize];
        self.read_range(&mut target, 0)?;
        Ok(target)
    }
}
