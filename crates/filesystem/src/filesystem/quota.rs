//! The counters of quota groups.

use larder_format::item::{QgroupInfoItem, QgroupLimitItem, qgroup_limit_flags};
use larder_format::{FormatError, ItemType, Key, objectid, read_exact_item};

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;

/// The counters and limits of a quota group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaGroup {
    /// Bytes that its subvolumes refer to.
    pub referenced_bytes: u64,
    /// Bytes that nothing else refers to.
    pub exclusive_bytes: u64,
    /// The limit of `referenced_bytes`.
    pub max_referenced_bytes: Option<u64>,
    /// The limit of `exclusive_bytes`.
    pub max_exclusive_bytes: Option<u64>,
}

impl Filesystem {
    /// The counters of the quota group `id`: those of the last commit or, in a file system that is
    /// open for writing, the current ones. `None` without quotas or without the group.
    ///
    /// The group of a subvolume has the subvolume's id; other groups have their level in the top 16
    /// bits.
    pub fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>> {
        let tree_id = objectid::QUOTA_TREE;
        let tree_key = Key::new(tree_id, ItemType::ROOT_ITEM, 0);
        if self.root_tree().get(tree_key)?.is_none() {
            return Ok(None);
        }
        let tree = self.tree(tree_id)?;
        let key = Key::new(0, ItemType::QGROUP_INFO, id);
        let Some(info) = tree.get(key)? else { return Ok(None) };
        let limit = tree.get(Key::new(0, ItemType::QGROUP_LIMIT, id))?;
        let mut group = QuotaGroup::of_items(&info, limit.as_deref())
            .map_err(|problem| Error::item(tree_id, key, problem))?;
        let quotas = self.try_writer().and_then(|writer| writer.manager().quotas());
        if let Some(counted) = quotas.and_then(|quotas| quotas.counted(id)) {
            group.referenced_bytes = counted.referenced_bytes;
            group.exclusive_bytes = counted.exclusive_bytes;
        }
        Ok(Some(group))
    }
}

impl QuotaGroup {
    /// The counters and limits in the items of a group, of which the second may be missing.
    pub fn of_items(info: &[u8], limit: Option<&[u8]>) -> Result<Self, FormatError> {
        let info: &QgroupInfoItem = read_exact_item(info)?;
        let mut group = Self {
            referenced_bytes: info.rfer.get(),
            exclusive_bytes: info.excl.get(),
            max_referenced_bytes: None,
            max_exclusive_bytes: None,
        };
        if let Some(limit) = limit {
            let limit: &QgroupLimitItem = read_exact_item(limit)?;
            let set = |flag: u64, bytes: u64| (limit.flags.get() & flag != 0).then_some(bytes);
            group.max_referenced_bytes = set(qgroup_limit_flags::MAX_RFER, limit.max_rfer.get());
            group.max_exclusive_bytes = set(qgroup_limit_flags::MAX_EXCL, limit.max_excl.get());
        }
        Ok(group)
    }
}
