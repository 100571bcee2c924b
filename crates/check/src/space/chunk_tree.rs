//! The chunk tree: chunks and devices.

use std::collections::BTreeMap;

use larder_format::item::{Chunk as ChunkItem, DevItem};
use larder_format::{ItemType, Logical, objectid, read_exact_item};
use larder_volume::Chunk;

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ItemEvidence, SpaceEvidence};
use crate::report::Location;

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
                let unexpected = ItemEvidence::Unexpected { found: other, tree: "chunk tree" };
                item.find(context, unexpected);
            }
        });
        tree.check_stripes(context, root.tree);
        tree
    }

    fn add_chunk(&mut self, context: &Context<'_>, item: &Item<'_>) {
        if item.key.objectid != objectid::FIRST_CHUNK_TREE {
            item.find(context, ItemEvidence::ChunkObjectid);
        }
        let parsed = match ChunkItem::parse(item.data) {
            Ok(parsed) => parsed,
            Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
        };
        if parsed.header.owner.get() != objectid::EXTENT_TREE {
            item.find(context, SpaceEvidence::ChunkOwner { found: parsed.header.owner.get() });
        }
        if u64::from(parsed.header.sector_size.get()) != context.sectorsize {
            let found = parsed.header.sector_size.get();
            item.find(context, SpaceEvidence::ChunkSectorSize { found });
        }
        let start = Logical(item.key.offset);
        let chunk = match Chunk::from_item(start, &parsed, context.sectorsize as u32) {
            Ok(chunk) => chunk,
            Err(error) => {
                let problem = error.to_string();
                return item.find(context, SpaceEvidence::ChunkInvalid { problem });
            }
        };
        if chunk.flags().contains(larder_format::BlockGroupFlags::SYSTEM) {
            self.system_items.insert(start.0, item.data.to_vec());
        }
        self.chunks.insert(start.0, chunk);
    }

    fn add_device(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let device = match read_exact_item::<DevItem>(item.data) {
            Ok(device) => *device,
            Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
        };
        let (devid, key) = (device.devid.get(), item.key);
        if key.objectid != objectid::DEV_ITEMS || key.offset != devid {
            item.find(context, ItemEvidence::Device { devid });
        }
        if device.bytes_used.get() > device.total_bytes.get() {
            let (bytes_used, total_bytes) = (device.bytes_used.get(), device.total_bytes.get());
            item.find(context, SpaceEvidence::DeviceUse { bytes_used, total_bytes });
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
                let (devid, uuid) = (stripe.devid, stripe.dev_uuid);
                let evidence = SpaceEvidence::StripeWithoutDevice { devid, uuid };
                context.find(Location::tree(tree).at(*start), evidence);
            }
        }
    }
}
