//! What quota groups count.

use larder_format::item::{QgroupInfoItem, QgroupLimitItem, qgroup_limit_flags};
use larder_format::{FormatError, ItemType, Key, objectid, read_exact_item};

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;

/// What a quota group counts and how much it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaGroup {
    /// Bytes that its subvolumes refer to.
    pub referenced_bytes: u64,
    /// Bytes that nothing else refers to.
    pub exclusive_bytes: u64,
    /// The most that may be referred to.
    pub max_referenced_bytes: Option<u64>,
    /// The most that may be referred to by nothing else.
    pub max_exclusive_bytes: Option<u64>,
}

impl Filesystem {
    /// What the quota group `id` counts: what the last commit has, or, in a file system that is open for
    /// writing, what it counts now. `None` without quotas or without the group.
    ///
    /// The group of a subvolume has the subvolume's id; the level of others is in the top 16 bits.
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
    /// What the items of a group, of which the second may be missing, say.
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
