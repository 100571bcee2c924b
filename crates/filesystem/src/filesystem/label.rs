//! The label of the file system, which is in its superblock.

use larder_format::superblock::LABEL_SIZE;

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;

impl Filesystem {
    /// Changes the label. It is durable when this returns.
    ///
    /// # Errors
    /// `EINVAL` for more than 255 bytes, for zeros and for ends of lines; `EROFS`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let writer = self.writer()?;
        if label.len() >= LABEL_SIZE {
            return Err(Error::Invalid("a label is at most 255 bytes long"));
        }
        if label.contains(&0) || label.contains(&b'\n') {
            return Err(Error::Invalid("a label is one line without zeros"));
        }
        writer.manager.change_superblock(|superblock| {
            superblock.label = [0; LABEL_SIZE];
            superblock.label[..label.len()].copy_from_slice(label);
        });
        self.sync()
    }
}
