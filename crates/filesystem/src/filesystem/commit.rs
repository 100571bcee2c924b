//! Taking part in commits.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::{Arc, Weak};

use larder_device::KeptState;
use larder_transaction::{Exclusive, ResyncProgress, TransactionHook};

use crate::changed::Changed;
use crate::commit::take_snapshots::take_snapshots;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::filesystem::cleaning::delete_unlinked;
use crate::handle::filesystem::Filesystem;
use crate::settings::inspector::Inspector;
use crate::writeback::delayed::flush_delayed;
use crate::writeback::flush::flush_all;
use crate::writeback::orphan_deletion::delete_orphans;

/// Before a commit it writes data back and inserts delayed items into their trees. In the commit it
/// takes snapshots and inserts the later delayed items. It frees space through delayed items and
/// deletions.
pub(crate) struct Hook {
    core: Weak<Core>,
}

impl Hook {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::downgrade(core) }
    }

    /// Does something with the file system, as long as there is one.
    fn with_core(&self, act: impl FnOnce(&Core, &Writer) -> Changed<()>) -> Changed<()> {
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        core.try_writer().map_or(Ok(()), |writer| act(&core, writer))
    }
}

impl TransactionHook for Hook {
    fn before_commit(&self) -> Changed<()> {
        self.with_core(|core, writer| {
            write_back(core)?;
            flush_delayed(writer)
        })
    }

    fn in_commit(&self, exclusive: &Exclusive<'_>) -> Changed<()> {
        self.with_core(|_, writer| {
            take_snapshots(writer, exclusive)?;
            writer.logged_inodes.committed();
            Ok(())
        })
    }

    fn has_more(&self) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        core.try_writer().is_some_and(Writer::has_more)
    }

    fn flush_queued(&self) -> Changed<()> {
        self.with_core(|_, writer| flush_delayed(writer))
    }

    fn moved(&self, _: &[Range<u64>]) {
        let Some(core) = self.core.upgrade() else { return };
        let Some(writer) = core.try_writer() else { return };
        // Few moves, each of much: what is remembered about the rest is soon found again.
        writer.extent_maps.forget_all();
        core.decompressed().forget_all();
        // Last: a thread that reads the new number must find both caches empty.
        writer.moves.fetch_add(1, AcqRel);
    }

    fn clean_deleted(&self) -> Changed<()> {
        self.with_core(|core, _| {
            // An inode with dirty data is not dropped before that.
            write_back(core)?;
            delete_unlinked(core);
            Ok(())
        })
    }
}

/// Writes back the dirty data of all files.
fn write_back(core: &Core) -> Changed<()> {
    flush_all(core).map_err(|error| match error {
        Error::Engine(error) => error,
        Error::Tree(error) => (*error).into(),
        _ => larder_transaction::Error::ReadOnly("data could not be written back"),
    })
}

impl Filesystem {
    /// Writes back the dirty data of all files. It is in the running transaction afterwards.
    #[doc(hidden)]
    pub fn write_back(&self) -> Result<()> {
        flush_all(self.core())
    }

    /// Deletes inodes without a name, and deleted subvolumes, that are not open any more. Removing
    /// a name does so too; callers that drop handles later call this. If a deletion fails, it is
    /// completed when the file system is opened for writing again.
    pub fn delete_unlinked(&self) {
        delete_unlinked(self.core());
    }

    /// Makes all earlier changes durable, by a commit. Does nothing in a file system that is open
    /// for reading.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, and `EROFS` once an error in a commit has made the file system read-only:
    /// the last commit is intact then.
    pub fn sync(&self) -> Result<()> {
        let Some(writer) = self.try_writer() else { return Ok(()) };
        flush_all(self.core())?;
        delete_orphans(writer);
        writer.manager.commit()?;
        if let Some(inspector) = writer.inspector.get().filter(|inspector| inspector.is_due()) {
            inspector.inspect(&self.keep_state()?);
        }
        Ok(())
    }

    /// From now on calls `inspect` with the kept state of every n-th commit that callers ask for,
    /// before the call returns. The first of several callers of this counts.
    #[doc(hidden)]
    pub fn inspect_commits(
        &self,
        every: NonZeroU64,
        inspect: impl Fn(&KeptState) + Send + Sync + 'static,
    ) {
        if let Some(writer) = self.try_writer() {
            writer.inspector.get_or_init(|| Inspector::new(every, inspect));
        }
    }

    /// Makes all changes durable, by a commit, and drops this handle. Other handles, such as open
    /// files, still work; changes that they make later need a commit of their own. Dropping a handle
    /// without this commits nothing.
    ///
    /// # Errors
    /// As [`sync`](Self::sync). Keep a clone to try again.
    pub fn close(self) -> Result<()> {
        self.sync()
    }

    /// Brings devices up to date that refused writes, or that missed commits and that opening had to
    /// leave out of date: they had data without checksums of which no other copy could be read. Other
    /// threads may use the file system meanwhile. Calls `tell` with the progress, and returns whether all devices are up
    /// to date now. Does nothing in a file system that is open for reading.
    pub fn bring_up_to_date(&self, tell: &dyn Fn(ResyncProgress)) -> Result<bool> {
        let Some(writer) = self.try_writer() else { return Ok(false) };
        Ok(writer.manager().bring_up_to_date(tell)?)
    }

    /// Inserts queued items into the trees, for readers that do not look at live inodes. Does
    /// nothing in a file system that is open for reading.
    pub(crate) fn flush_delayed(&self) -> Result<()> {
        Ok(self.try_writer().map_or(Ok(()), flush_delayed)?)
    }
}
