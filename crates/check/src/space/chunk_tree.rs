//! The chunk tree: chunks and devices.

use std::collections::BTreeMap;

use larder_format::item::{Chunk as ChunkItem, DevItem};
use larder_format::{ItemType, Logical, objectid, read_exact_item};
use larder_volume::Chunk;

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::report::Kind;

/// The contents of the chunk tree.
#[derive(Debug, Default)]
pub(crate) struct ChunkTree {
    /// Chunks by logical address. They do not overlap: a volume with overlapping chunks does not
    /// open.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// The items of SYSTEM chunks as stored, by logical address.
    pub(crate) system_items: BTreeMap<u64, Vec<u8>>,
    pub(crate) devices: BTreeMap<u64, DevItem>,
    /// Whether all of the tree could be read.
    pub(crate) is_whole: bool,
}

impl ChunkTree {
    /// Reads the chunk tree.
    pub(crate) fn read(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot) -> Self {
        let mut tree = Self::default();
        tree.is_whole = for_each_item(context, forest, root, |item| match item.key.item_type {
            ItemType::CHUNK_ITEM => tree.add_chunk(context, &item),
            ItemType::DEV_ITEM => tree.add_device(context, &item),
            other => {
                let message = format_args!("{other} in the chunk tree");
                item.find(context, Kind::UnexpectedItem, message);
            }
        });
        tree.check_stripes(context, root.tree);
        tree
    }

    fn add_chunk(&mut self, context: &Context<'_>, item: &Item<'_>) {
        if item.key.objectid != objectid::FIRST_CHUNK_TREE {
            item.find(context, Kind::ItemKey, format_args!("a chunk's objectid is 256"));
        }
        let parsed = match ChunkItem::parse(item.data) {
            Ok(parsed) => parsed,
            Err(error) => return item.find(context, Kind::ItemFormat, format_args!("{error}")),
        };
        if parsed.header.owner.get() != objectid::EXTENT_TREE {
            item.find(context, Kind::Chunk, format_args!("its owner is {}", parsed.header.owner));
        }
        if u64::from(parsed.header.sector_size.get()) != context.sectorsize {
            let message = format_args!("its sector_size is {}", parsed.header.sector_size);
            item.find(context, Kind::Chunk, message);
        }
        let start = Logical(item.key.offset);
        let chunk = match Chunk::from_item(start, &parsed, context.sectorsize as u32) {
            Ok(chunk) => chunk,
            Err(error) => return item.find(context, Kind::Chunk, format_args!("{error}")),
        };
        if chunk.flags().contains(larder_format::BlockGroupFlags::SYSTEM) {
            self.system_items.insert(start.0, item.data.to_vec());
        }
        self.chunks.insert(start.0, chunk);
    }

    fn add_device(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let device = match read_exact_item::<DevItem>(item.data) {
            Ok(device) => *device,
            Err(error) => return item.find(context, Kind::ItemFormat, format_args!("{error}")),
        };
        let (devid, key) = (device.devid.get(), item.key);
        if key.objectid != objectid::DEV_ITEMS || key.offset != devid {
            item.find(context, Kind::ItemKey, format_args!("of the device {devid}"));
        }
        if device.bytes_used.get() > device.total_bytes.get() {
            let DevItem { bytes_used, total_bytes, .. } = device;
            let message = format_args!("{bytes_used} bytes used of {total_bytes}");
            item.find(context, Kind::DeviceItem, message);
        }
        self.devices.insert(devid, device);
    }

    fn check_stripes(&self, context: &Context<'_>, tree: u64) {
        for (start, chunk) in &self.chunks {
            for stripe in chunk.stripes() {
                let device = self.devices.get(&stripe.devid);
                if device.is_some_and(|device| device.uuid() == stripe.dev_uuid) {
                    continue;
                }
                let message = format_args!(
                    "a stripe lies on device {} {}, which the chunk tree does not list",
                    stripe.devid, stripe.dev_uuid
                );
                context.find(Kind::Chunk, crate::report::Location::tree(tree).at(*start), message);
            }
        }
    }
}
