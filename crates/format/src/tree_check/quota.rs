//! Quota groups.

use super::{Item, Verdict, ensure};
use crate::ItemType;
use crate::item::{QgroupInfoItem, QgroupLimitItem, QgroupStatusItem};

pub(super) fn check(item: &Item<'_>) -> Verdict {
    match item.key.item_type {
        ItemType::QGROUP_STATUS => {
            let (before, now) = (size_of::<QgroupStatusItem>(), size_of::<QgroupStatusItem>() + 8);
            let len = item.data.len();
            ensure([before, now].contains(&len), || format!("{len} bytes"))
        }
        ItemType::QGROUP_INFO => item.ensure_len(size_of::<QgroupInfoItem>()),
        ItemType::QGROUP_LIMIT => item.ensure_len(size_of::<QgroupLimitItem>()),
        _ => item.ensure_len(0),
    }
}
