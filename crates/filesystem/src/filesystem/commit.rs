//! Taking part in commits.

use std::sync::{Arc, Weak};

use larder_transaction::{Exclusive, TransactionHook, TransactionManager};

use crate::core::writer::{Changed, Writer};
use crate::error::{Error, Result};
use crate::filesystem::handle::{Filesystem, Shared};

/// Before a commit it writes data back and puts delayed items into their trees. In the commit it takes snapshots
/// and puts later delayed items into the trees. It frees space by delayed items and by deletions.
pub(crate) struct Hook {
    filesystem: Weak<Shared>,
}

impl Hook {
    pub(crate) fn new(filesystem: &Filesystem) -> Self {
        Self { filesystem: Arc::downgrade(filesystem.shared()) }
    }

    fn filesystem(&self) -> Option<Filesystem> {
        self.filesystem.upgrade().map(Filesystem::from)
    }
}

impl TransactionHook for Hook {
    fn before_commit(&self, _manager: &TransactionManager) -> Changed<()> {
        let Some(filesystem) = self.filesystem() else { return Ok(()) };
        write_back(&filesystem)?;
        filesystem.try_writer().map_or(Ok(()), Writer::flush_delayed)
    }

    fn in_commit(&self, exclusive: &Exclusive<'_>) -> Changed<()> {
        let Some(filesystem) = self.filesystem() else { return Ok(()) };
        filesystem.take_snapshots(exclusive)?;
        // The commit makes all logs void.
        filesystem.try_writer().inspect(|writer| writer.logged_inodes.clear());
        Ok(())
    }

    fn has_more(&self) -> bool {
        let Some(filesystem) = self.filesystem() else { return false };
        filesystem.try_writer().is_some_and(Writer::has_more)
    }

    fn flush_queued(&self, _manager: &TransactionManager) -> Changed<()> {
        let Some(filesystem) = self.filesystem() else { return Ok(()) };
        filesystem.try_writer().map_or(Ok(()), Writer::flush_delayed)
    }

    fn clean_deleted(&self, _manager: &TransactionManager) -> Changed<()> {
        let Some(filesystem) = self.filesystem() else { return Ok(()) };
        // An inode with data that is not written back is not let go of before that.
        write_back(&filesystem)?;
        filesystem.delete_unlinked();
        Ok(())
    }
}

/// Writes back what all files have in memory only.
fn write_back(filesystem: &Filesystem) -> Changed<()> {
    filesystem.flush_all().map_err(|error| match error {
        Error::Engine(error) => error,
        Error::Tree(error) => (*error).into(),
        _ => larder_transaction::Error::ReadOnly("data could not be written back"),
    })
}

impl Writer {
    /// Whether anything waits to be written back, or to be deleted.
    fn has_more(&self) -> bool {
        let has_deleted = !self.orphans.is_empty() || !self.deleted.is_empty();
        has_deleted || !self.dirty.is_empty() || !self.delayed.is_empty()
    }
}

impl Filesystem {
    /// Makes everything that was done before this call durable, by a commit. Nothing happens in a file
    /// system that is open for reading.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, and `EROFS` once an error in a commit has made the file system read-only: the last
    /// commit is intact then.
    pub fn sync(&self) -> Result<()> {
        let Some(writer) = self.try_writer() else { return Ok(()) };
        self.flush_all()?;
        writer.delete_orphans();
        writer.manager.commit()?;
        Ok(())
    }
}
