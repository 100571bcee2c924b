//! References from files to data.

use larder_format::Logical;
use larder_format::objectid::FIRST_FREE;

use super::tree_space::TreeSpace;
use crate::error::Result;
use crate::extent::Referrer;
use crate::quota::signed;
use crate::refs::{ExtentKind, ExtentRef, HeadLock};
use crate::tree_items::TreeItems;

/// An extent of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// Its address.
    pub logical: Logical,
    /// Its length on disk in bytes.
    pub len_bytes: u64,
}

impl From<DataExtent> for ExtentRef {
    fn from(DataExtent { logical, len_bytes }: DataExtent) -> Self {
        Self { logical, len_bytes, kind: ExtentKind::Data }
    }
}

/// The file that refers to data, as in a file extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOwner {
    /// Id of the subvolume.
    pub root: u64,
    /// Number of the inode.
    pub inode: u64,
    /// File offset minus offset in the extent (wrapping).
    pub offset: u64,
}

impl From<DataOwner> for Referrer {
    fn from(DataOwner { root, inode, offset }: DataOwner) -> Self {
        debug_assert!(inode >= FIRST_FREE);
        Self::File { root, inode, offset }
    }
}

impl TreeSpace {
    /// Whether `referrer` has all references to data, as far as this is known without reading keyed
    /// references.
    pub(crate) fn has_all_references(&self, data: ExtentRef, referrer: Referrer) -> Result<bool> {
        let head = self.refs.lock_head(data.logical);
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.data_references(&tree, data.logical, data.len_bytes, referrer)?;
        let (all, own) = stored.unwrap_or_default();
        let (net, own_change) =
            head.pending().map_or((0, 0), |head| (head.net(), head.change_of(referrer)));
        let (all, own) = (all.checked_add_signed(net), own.checked_add_signed(own_change));
        Ok(all.is_some_and(|all| all > 0) && all == own)
    }

    /// Queues the first reference of a file to data.
    pub(crate) fn add_new_data(&self, data: ExtentRef, file: DataOwner) {
        self.refs.add_new(data, file.into(), 1);
        if let Some(quotas) = self.quotas() {
            let len_bytes = signed(data.len_bytes);
            quotas.change(file.root, len_bytes, len_bytes);
        }
    }

    /// Queues one more reference of a file to data (`count` is 1), or one less (-1).
    pub(crate) fn change_data(&self, data: ExtentRef, file: DataOwner, count: i64) {
        let Some(quotas) = self.quotas().filter(|quotas| quotas.has(file.root)) else {
            let _ = self.refs.change(data, file.into(), count);
            return;
        };
        // Locked: of two threads that drop the last two references, one must see that it drops the
        // last.
        let head = self.refs.lock_head(data.logical);
        let before = self.data_references_of(data, file.root, &head);
        let _ = self.refs.change(data, file.into(), count);
        drop(head);
        // If it cannot be read, it is not counted: running the reference will fail on it.
        let Ok((all, own)) = before else { return };
        let after = own.saturating_add(count);
        let (begins, ends) = (own <= 0 && after > 0, own > 0 && after <= 0);
        if begins || ends {
            let len_bytes = count.signum() * signed(data.len_bytes);
            let is_exclusive = all == own;
            quotas.change(file.root, len_bytes, if is_exclusive { len_bytes } else { 0 });
        }
    }

    /// How many references data has, and how many of them are from files in the subvolume `root`,
    /// as far as this is known without reading keyed references.
    fn data_references_of(
        &self,
        data: ExtentRef,
        root: u64,
        head: &HeadLock<'_>,
    ) -> Result<(i64, i64)> {
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.subvolume_references(&tree, data.logical, data.len_bytes, root)?;
        let (all, own) = stored.unwrap_or_default();
        let (net, own_change) =
            head.pending().map_or((0, 0), |head| (head.net(), head.change_of_subvolume(root)));
        Ok((signed(all).saturating_add(net), signed(own).saturating_add(own_change)))
    }
}
