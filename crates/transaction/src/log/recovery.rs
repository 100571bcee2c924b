//! Replaying logs: one transaction, filled in by the crate that knows files.

use std::sync::Arc;

use larder_btree::{BlockCache, LiveTree};
use larder_format::Superblock;
use larder_format::feature::IncompatFlags;
use larder_format::item::EXTENT_FLAG_DATA;
use larder_volume::Volume;
use parking_lot::Mutex;

use super::FoundLog;
use super::found::{ClaimedData, FoundLogs};
use crate::error::{Error, Result};
use crate::manager::{DataExtent, DataOwner, Handle, TransactionManager};
use crate::refs::ExtentKind;
use crate::tree_items::TreeItems;

/// The transaction in which logs are replayed.
#[derive(Debug)]
pub struct Recovery<'m> {
    manager: &'m TransactionManager,
    handle: Handle<'m>,
    logs: Vec<FoundLog>,
    data: Mutex<ClaimedData>,
}

impl TransactionManager {
    /// As [`open`](Self::open), but `replay` first replays the log trees that a crash left; after that they are void.
    /// A commit makes that durable; nothing is written before it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of `replay`; then everything is as the crash left it.
    pub fn open_replaying(
        volume: Arc<Volume>,
        cache: Arc<BlockCache>,
        replay: impl FnOnce(&Recovery<'_>) -> Result<()>,
    ) -> Result<Self> {
        let manager = Self::load(volume, cache)?;
        let superblock = manager.superblock();
        if superblock.log_root.get() != 0 {
            manager.replay(&superblock, replay).map_err(Error::while_opening)?;
            manager.change_superblock(|superblock| {
                superblock.log_root = 0.into();
                superblock.log_root_transid = 0.into();
                superblock.log_root_level = 0;
            });
            let generation = manager.commit()?;
            tracing::info!("the log is replayed, and committed as generation {generation}");
        }
        manager.bring_devices_up_to_date()?;
        Ok(manager)
    }

    fn replay(
        &self,
        superblock: &Superblock,
        replay: impl FnOnce(&Recovery<'_>) -> Result<()>,
    ) -> Result<()> {
        let FoundLogs { logs, data } =
            FoundLogs::find(self.forest().cache(), superblock, self.space())?;
        let handle = self.join()?;
        let recovery = Recovery { manager: self, handle, logs, data: Mutex::new(data) };
        replay(&recovery)?;
        recovery.end()
    }
}

impl<'m> Recovery<'m> {
    /// The logs in order of subvolumes.
    pub fn logs(&self) -> &[FoundLog] {
        &self.logs
    }

    /// What is being recovered.
    pub fn manager(&self) -> &'m TransactionManager {
        self.manager
    }

    /// The right to change trees.
    pub fn handle(&self) -> &Handle<'m> {
        &self.handle
    }

    /// The tree of a subvolume; `None` if it is no more, or is being deleted.
    pub fn subvolume(&self, id: u64) -> Result<Option<Arc<LiveTree>>> {
        let tree = self.manager.tree(id)?;
        let item = self.manager.root_item(id);
        Ok(tree.filter(|_| item.is_some_and(|(_, item)| item.refs.get() > 0)))
    }

    /// Notes that data has a feature.
    pub fn require(&self, feature: IncompatFlags) {
        self.manager.change_superblock(|superblock| {
            superblock.incompat_flags = (superblock.incompat_flags.get() | feature.bits()).into();
        });
    }

    /// Queues one more reference of a file to data that a log refers to.
    ///
    /// # Errors
    /// When the data is neither an extent nor was claimed for a log: it lies across others.
    pub fn add_data_reference(&self, extent: DataExtent, file: DataOwner) -> Result<()> {
        if self.is_extent(extent)? {
            self.handle.add_data_reference(extent, file);
            return Ok(());
        }
        let mut data = self.data.lock();
        let claimed = data.get_mut(&extent.logical.0);
        let claimed = claimed.filter(|(len_bytes, _)| *len_bytes == extent.len_bytes);
        let lies_across =
            || Error::extent(extent.logical, "a log refers to what lies across extents");
        claimed.ok_or_else(lies_across)?.1 = true;
        self.handle.add_new_data(extent, file);
        Ok(())
    }

    /// Whether the last commit has an extent of data just like it.
    fn is_extent(&self, extent: DataExtent) -> Result<bool> {
        let items = self.manager.extent_items();
        let tree = TreeItems::new(self.manager.extent_tree().clone());
        let DataExtent { logical, len_bytes } = extent;
        let found = items.references(&tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.is_some_and(|found| found.flags & EXTENT_FLAG_DATA != 0))
    }

    /// Frees the data that was claimed for a log and that nothing refers to after the replay.
    fn end(self) -> Result<()> {
        for (start, (len_bytes, is_used)) in self.data.into_inner() {
            if !is_used {
                self.manager.space().abandoned(&(start..start + len_bytes))?;
            }
        }
        self.handle.end()
    }
}
