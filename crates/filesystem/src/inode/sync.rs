//! fsync.

use crate::error::Result;
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;
use crate::log::sync::sync_inode;
use crate::writeback::flush::flush;

impl Inode {
    /// Makes all changes of this file or directory durable: data, attributes and names of a file;
    /// attributes, names, and added and removed entries, of a directory. Does nothing in a file system
    /// that is open for reading. This takes far less than a commit, unless it must be one.
    ///
    /// # Errors
    /// As [`Filesystem::sync`](crate::Filesystem::sync).
    pub fn sync(&self) -> Result<()> {
        let Some(live) = self.try_live_inode() else { return Ok(()) };
        if self.file_type() == FileType::Regular {
            flush(self.core(), live)?;
        }
        let writer = self.writer()?;
        let durable_generation = writer.manager.durable_generation();
        if self.is_subvolume_root()
            && writer.renamed.is_pending(live.id().subvolume, durable_generation)
        {
            writer.manager.commit()?;
            return Ok(());
        }
        let Some(sequence) = live.unsynced(durable_generation) else {
            writer.logged_inodes.synced_by_commit([live.id()]);
            return Ok(());
        };
        let is_directory = self.file_type() == FileType::Directory;
        sync_inode(self.core(), writer, live.id(), is_directory)?;
        live.synced(sequence);
        Ok(())
    }

    /// Like [`sync`](Self::sync), for callers that do not need times: those come along, since they
    /// cost nothing. Neither call does anything if the inode has not changed since it was durable.
    pub fn sync_data(&self) -> Result<()> {
        self.sync()
    }
}
