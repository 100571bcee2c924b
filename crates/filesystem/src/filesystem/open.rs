//! Opening a file system for writing.

use std::sync::Arc;

use larder_btree::BlockCache;
use larder_transaction::{BackgroundCommits, TransactionManager};
use larder_volume::Volume;

use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::filesystem::cleaning::{delete_unlinked, resume_deletions};
use crate::filesystem::commit::Hook;
use crate::filesystem::options::WriteOptions;
use crate::handle::filesystem::Filesystem;
use crate::log::replay;

impl WriteOptions<'_> {
    /// Opens the file system on `volume`, which is open for writing, for reading and writing.
    ///
    /// Changes are durable after [`close`](Filesystem::close) or [`sync`](Filesystem::sync). If the
    /// last handle is dropped without either, the last commit counts, and a message says so. Logs that a crash left are replayed first, and interrupted deletions
    /// are completed.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) if a sound file system can only be read.
    #[doc(hidden)]
    pub fn open(&self, volume: Arc<Volume>) -> Result<Filesystem> {
        let Self { cache_bytes, commit_interval, commit_bytes, dirty_bytes, tuning, .. } = *self;
        let cache = Arc::new(BlockCache::new(volume.clone(), cache_bytes));
        let manager = Arc::new(TransactionManager::open_replaying(
            volume.clone(),
            cache.clone(),
            replay::replay,
            self.resync_progress,
        )?);
        let writer = Writer::new(manager.clone(), cache_bytes, dirty_bytes, tuning);
        let core = Arc::new(Core::writable(volume, cache, writer)?);
        manager.set_hook(Arc::new(Hook::new(&core)));
        let filesystem = Filesystem::from(core);
        resume_deletions(&filesystem)?;
        let background = commit_interval.map(|interval| {
            let core = Arc::downgrade(filesystem.core());
            // The thread that drops the last handle of an inode without a name need not delete it.
            let tidy = move || {
                if let Some(core) = core.upgrade() {
                    delete_unlinked(&core);
                }
            };
            BackgroundCommits::start(manager, interval, commit_bytes, tidy)
        });
        Ok(filesystem.for_caller(background))
    }
}
