//! The counters of quota groups.

use larder_format::item::{QgroupInfoItem, QgroupLimitItem, qgroup_limit_flags};
use larder_format::{FormatError, read_exact_item};

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
