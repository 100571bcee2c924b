//! What can be changed about an open file system: its label, and how files are written.

use larder_format::superblock::LABEL_SIZE;

use crate::core::policy::WritePolicy;
use crate::error::{Error, Result};
use crate::file::writeback::compress::WriteCompression;
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

    /// Changes how files are written from now on. Flags of files that are there stay.
    pub fn set_write_policy(&self, policy: WritePolicy) -> Result<()> {
        *self.writer()?.policy.write() = policy;
        Ok(())
    }

    /// Compresses data that is written back from now on, unless its file says otherwise; `None` compresses
    /// that of files which ask for it.
    pub fn set_compression(&self, compression: Option<WriteCompression>) -> Result<()> {
        *self.writer()?.compression.write() = compression;
        Ok(())
    }

    /// Files up to this size, in bytes, are kept in the tree.
    pub fn most_inline_bytes(&self) -> u64 {
        self.core().most_inline_bytes()
    }

    /// Whether devices are told what space is needed no more, after each commit: not, unless set. Fails in a
    /// file system that is open for reading.
    pub fn set_discards(&self, discards: bool) -> Result<()> {
        self.writer()?.manager().set_discards(discards);
        Ok(())
    }
}
