//! The device tree: the ranges of devices that belong to chunks.

use larder_format::item::{DevExtent, DevReplaceItem, DevStatsItem};
use larder_format::{ItemType, objectid, read_exact_item};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::ItemEvidence;
use crate::report::Location;

/// A range of a device that belongs to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceExtent {
    pub(crate) devid: u64,
    pub(crate) physical: u64,
    pub(crate) len_bytes: u64,
    /// Logical address of the chunk.
    pub(crate) chunk: u64,
}

impl DeviceExtent {
    pub(crate) fn end(&self) -> u64 {
        self.physical.saturating_add(self.len_bytes)
    }

    pub(crate) fn location(&self) -> Location {
        Location::device(self.devid).at_physical(self.physical)
    }
}

/// Reads the device tree; `None` if a part of it could not be read.
pub(crate) fn read(
    context: &Context<'_>,
    forest: &mut Forest,
    root: &TreeRoot,
) -> Option<Vec<DeviceExtent>> {
    let mut extents = Vec::new();
    let is_whole = for_each_item(context, forest, root, |item| match item.key.item_type {
        ItemType::DEV_EXTENT => extents.extend(device_extent(context, &item)),
        ItemType::PERSISTENT_ITEM if item.key.objectid == objectid::DEV_STATS => {
            // Later kernels may append counters.
            if item.data.len() < size_of::<DevStatsItem>() {
                let found = item.data.len();
                item.find(context, ItemEvidence::DeviceStatisticsLen { found });
            }
        }
        ItemType::DEV_REPLACE => {
            if let Err(error) = read_exact_item::<DevReplaceItem>(item.data) {
                item.find(context, ItemEvidence::Format { problem: error });
            }
        }
        other => {
            let unexpected = ItemEvidence::Unexpected { found: other, tree: "device tree" };
            item.find(context, unexpected);
        }
    });
    is_whole.then_some(extents)
}

fn device_extent(context: &Context<'_>, item: &Item<'_>) -> Option<DeviceExtent> {
    let extent = read_exact_item::<DevExtent>(item.data)
        .inspect_err(|error| item.find(context, ItemEvidence::Format { problem: error.clone() }))
        .ok()?;
    let DevExtent { chunk_tree, chunk_objectid, length, .. } = extent;
    if chunk_tree.get() != objectid::CHUNK_TREE
        || chunk_objectid.get() != objectid::FIRST_CHUNK_TREE
    {
        let (chunk, tree) = (chunk_objectid.get(), chunk_tree.get());
        item.find(context, ItemEvidence::DeviceExtentChunk { chunk, tree });
    }
    Some(DeviceExtent {
        devid: item.key.objectid,
        physical: item.key.offset,
        len_bytes: length.get(),
        chunk: extent.chunk_offset().0,
    })
}
