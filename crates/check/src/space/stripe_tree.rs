//! The raid stripe tree, item by item.

use larder_format::ItemType;
use larder_format::item::RaidStride;

use crate::blocks::{Forest, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::ItemEvidence;

/// Reads the raid stripe tree and reports invalid items.
pub(crate) fn check(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot) {
    for_each_item(context, forest, root, |item| {
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        if item.key.item_type != ItemType::RAID_STRIPE {
            let (found, tree) = (item.key.item_type, "raid stripe tree");
            item.find(context, ItemEvidence::Unexpected { found, tree });
        } else if !context.is_aligned(start) || !context.is_aligned(len_bytes) || len_bytes == 0 {
            item.find(context, ItemEvidence::NotWholeSectors);
        } else if item.data.is_empty() || !item.data.len().is_multiple_of(size_of::<RaidStride>()) {
            item.find(context, ItemEvidence::StripeLen { found: item.data.len() });
        }
    });
}
