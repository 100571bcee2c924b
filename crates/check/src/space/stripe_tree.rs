//! The raid stripe tree, item by item.

use larder_format::ItemType;
use larder_format::item::RaidStride;

use crate::blocks::{Forest, TreeRoot, for_each_item};
use crate::context::Context;
use crate::report::Kind;

/// Reads the raid stripe tree and reports invalid items.
pub(crate) fn check(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot) {
    for_each_item(context, forest, root, |item| {
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        if item.key.item_type != ItemType::RAID_STRIPE {
            let message = format_args!("{} in the raid stripe tree", item.key.item_type);
            item.find(context, Kind::UnexpectedItem, message);
        } else if !context.is_aligned(start) || !context.is_aligned(len_bytes) || len_bytes == 0 {
            item.find(context, Kind::ItemKey, format_args!("it does not consist of whole sectors"));
        } else if item.data.is_empty() || !item.data.len().is_multiple_of(size_of::<RaidStride>()) {
            let message = format_args!("it has {} bytes", item.data.len());
            item.find(context, Kind::ItemFormat, message);
        }
    });
}
