//! Replaying logs: one transaction, which the crate that knows files fills.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::Superblock;
use larder_format::feature::IncompatFlags;
use larder_format::item::EXTENT_FLAG_DATA;
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

impl<'m> Recovery<'m> {
    /// Finds the logs that `superblock` leads to, and joins the transaction that replays them.
    pub(crate) fn begin(manager: &'m TransactionManager, superblock: &Superblock) -> Result<Self> {
        let cache = manager.trees().forest().cache();
        let FoundLogs { logs, data } = FoundLogs::find(cache, superblock, manager.space())?;
        let handle = manager.join()?;
        Ok(Self { manager, handle, logs, data: Mutex::new(data) })
    }

    /// The logs in order of subvolumes.
    pub fn logs(&self) -> &[FoundLog] {
        &self.logs
    }

    /// The file system that is being recovered.
    pub fn manager(&self) -> &'m TransactionManager {
        self.manager
    }

    /// The right to change trees.
    pub fn handle(&self) -> &Handle<'m> {
        &self.handle
    }

    /// The tree of a subvolume; `None` if it is gone, or is being deleted.
    pub fn subvolume(&self, id: u64) -> Result<Option<Arc<LiveTree>>> {
        let tree = self.manager.trees().open(id)?;
        let item = self.manager.trees().root_item(id);
        Ok(tree.filter(|_| item.is_some_and(|(_, item)| item.refs.get() > 0)))
    }

    /// Sets a feature flag because of data in the log.
    pub fn require(&self, feature: IncompatFlags) {
        self.manager.change_superblock(|superblock| {
            superblock.incompat_flags = (superblock.incompat_flags.get() | feature.bits()).into();
        });
    }

    /// Queues one more reference of a file to data that a log refers to.
    ///
    /// # Errors
    /// If the data is neither an extent nor was claimed for a log: it overlaps others.
    pub fn add_data_reference(&self, extent: DataExtent, file: DataOwner) -> Result<()> {
        if self.is_extent(extent)? {
            self.handle.add_data_reference(extent, file);
            return Ok(());
        }
        let mut data = self.data.lock();
        let claimed = data.get_mut(&extent.logical.0);
        let claimed = claimed.filter(|(len_bytes, _)| *len_bytes == extent.len_bytes);
        let lies_across =
            || Error::extent(extent.logical, "a log refers to data that lies across extents");
        claimed.ok_or_else(lies_across)?.1 = true;
        self.handle.add_new_data(extent, file);
        Ok(())
    }

    /// Whether the last commit has exactly this extent of data.
    fn is_extent(&self, extent: DataExtent) -> Result<bool> {
        let items = self.manager.extent_items();
        let tree = TreeItems::new(self.manager.trees().extent().clone());
        let DataExtent { logical, len_bytes } = extent;
        let found = items.references(&tree, logical, len_bytes, ExtentKind::Data)?;
        Ok(found.is_some_and(|found| found.flags & EXTENT_FLAG_DATA != 0))
    }

    /// Frees the data that was claimed for a log and that nothing refers to after the replay.
    pub(crate) fn end(self) -> Result<()> {
        for (start, (len_bytes, is_used)) in self.data.into_inner() {
            if !is_used {
                self.manager.space().abandoned(&(start..start + len_bytes))?;
            }
        }
        self.handle.end()
    }
}
