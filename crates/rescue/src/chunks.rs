//! The chunks, when the chunk tree cannot be read.
//!
//! A reader needs only those with data: tree blocks are read where they were found. A repair needs
//! all. What says where they lie, from the best to the least:
//!
//! 1. Leaves of the chunk tree that are left, as far as the device tree agrees.
//! 2. Block groups, and the extents that the device tree has for them. Which stripe of a chunk an
//!    extent is, the content says: each sector of data has a checksum, each tree block its address.
//! 3. For a block group without extents, and for data without a block group, the content alone
//!    ([`sequence`](crate::sequence), [`metadata_chunks`]).
//!
//! # Invariants
//! - No chunk overlaps another, and each stripe lies within its device.

use std::collections::BTreeMap;

use larder_format::item::{self, BlockGroupItem, DevExtent, DevItem};
use larder_format::objectid::{BLOCK_GROUP_TREE, CHUNK_TREE, CSUM_TREE, DEV_TREE, EXTENT_TREE};
use larder_format::{BlockGroupFlags, ItemType, Logical, Physical, Uuid, read_exact_item};
use larder_volume::{Chunk, ChunkMap, ChunkStripe};
use zerocopy::FromZeros;

use crate::attach::{Attached, InUse, Source, attach};
use crate::blocks::{Blocks, Pointer};
use crate::checksums::Checksums;
use crate::metadata_chunks;
use crate::missing::Missing;
use crate::sequence;
use crate::trees::Roots;

/// What the trees say of chunks.
#[derive(Default)]
pub(crate) struct Said {
    /// Chunks of the chunk tree and the superblock.
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) devices: BTreeMap<u64, DevItem>,
    /// Start and length in bytes of the chunk that has a device extent, by device and address.
    extents: BTreeMap<(u64, u64), (u64, u64)>,
    /// Length in bytes and flags, by start.
    groups: BTreeMap<u64, (u64, BlockGroupFlags)>,
}

/// The chunks and devices, as far as anything is left that tells.
pub(crate) struct Found {
    pub(crate) chunks: ChunkMap,
    pub(crate) devices: Vec<DevItem>,
}

/// Finds the chunks.
pub(crate) fn find(blocks: &Blocks, missing: &mut Missing<'_>, roots: &Roots) -> Found {
    let said = Said::of(blocks, missing, roots);
    let mut chunks = ChunkMap::new();
    let (confirmed, others): (Vec<Chunk>, Vec<Chunk>) =
        said.chunks.iter().cloned().partition(|chunk| said.confirms(chunk));
    for chunk in confirmed {
        said.insert(&mut chunks, chunk);
    }
    let checksums = Checksums::of(blocks, roots.tree(blocks, missing, CSUM_TREE));
    let (mut of_data, mut of_blocks) = (Vec::new(), Vec::new());
    for (start, (len_bytes, flags)) in &said.groups {
        if chunks.get(Logical(*start)).is_some() {
            continue;
        }
        let has_blocks = flags.intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM);
        if has_blocks {
            of_blocks.push((*start, *len_bytes, *flags));
            continue;
        }
        match Chunk::new(Logical(*start), *len_bytes, *flags, said.stripes(*start)) {
            Ok(chunk) => said.insert(&mut chunks, sequence::in_order(blocks, &checksums, chunk)),
            Err(_) => of_data.push((*start, *len_bytes, *flags)),
        }
    }
    for chunk in others {
        said.insert(&mut chunks, chunk);
    }
    of_data.retain(|(start, ..)| chunks.get(Logical(*start)).is_none());
    for chunk in sequence::find(blocks, &checksums, &said.devices, &of_data) {
        said.insert(&mut chunks, chunk);
    }
    for chunk in sequence::find_cells(blocks, &checksums, &said.devices, &chunks) {
        said.insert(&mut chunks, chunk);
    }
    // Readers do without these: they take no room from others.
    of_blocks.retain(|(start, ..)| chunks.get(Logical(*start)).is_none());
    let mut without_extents = Vec::new();
    for (start, len_bytes, flags) in of_blocks {
        match Chunk::new(Logical(start), len_bytes, flags, said.stripes(start)) {
            Ok(chunk) => said.insert(&mut chunks, metadata_chunks::in_order(blocks, chunk)),
            Err(_) => without_extents.push((start, len_bytes, flags)),
        }
    }
    for chunk in metadata_chunks::find(blocks, &said.devices, &without_extents) {
        said.insert(&mut chunks, chunk);
    }
    Found { chunks, devices: said.devices.into_values().collect() }
}

impl Said {
    /// What the chunk tree says, as far as it is left.
    pub(crate) fn of_chunk_tree(blocks: &Blocks, missing: &mut Missing<'_>) -> Self {
        let superblock = &blocks.evidence.superblock;
        let sectorsize = superblock.sectorsize.get();
        let mut said = Self::default();
        let mut chunks = BTreeMap::new();
        let system = superblock.system_chunks().filter_map(Result::ok);
        let system = system.map(|(key, item)| (key.offset, item));
        for (logical, item) in system {
            chunks.extend(
                Chunk::from_item(Logical(logical), &item, sectorsize).map(|it| (logical, it)),
            );
        }
        chunk_tree(blocks, missing).for_each_item(blocks, &mut |key, data| match key.item_type {
            ItemType::DEV_ITEM => {
                if let Ok(item) = read_exact_item::<DevItem>(data) {
                    said.devices.insert(item.devid.get(), *item);
                }
            }
            ItemType::CHUNK_ITEM => {
                let item = item::Chunk::parse(data).ok();
                let logical = Logical(key.offset);
                let chunk = item.and_then(|it| Chunk::from_item(logical, &it, sectorsize).ok());
                chunks.extend(chunk.map(|it| (key.offset, it)));
            }
            _ => {}
        });
        said.chunks = chunks.into_values().collect();
        said
    }

    fn of(blocks: &Blocks, missing: &mut Missing<'_>, roots: &Roots) -> Self {
        let mut said = Self::of_chunk_tree(blocks, missing);
        let devices = roots.tree(blocks, missing, DEV_TREE);
        devices.for_each_item(blocks, &mut |key, data| {
            if let (ItemType::DEV_EXTENT, Ok(item)) =
                (key.item_type, read_exact_item::<DevExtent>(data))
            {
                let chunk = (item.chunk_offset.get(), item.length.get());
                said.extents.insert((key.objectid, key.offset), chunk);
            }
        });
        for tree in [EXTENT_TREE, BLOCK_GROUP_TREE] {
            roots.tree(blocks, missing, tree).for_each_item(blocks, &mut |key, data| {
                if let (ItemType::BLOCK_GROUP_ITEM, Ok(item)) =
                    (key.item_type, read_exact_item::<BlockGroupItem>(data))
                {
                    said.groups.insert(key.objectid, (key.offset, item.flags()));
                }
            });
        }
        said.add_devices(blocks);
        said
    }

    /// Adds the devices that are there, and those that extents lie on.
    fn add_devices(&mut self, blocks: &Blocks) {
        for member in &blocks.evidence.members {
            self.devices.insert(member.devid, member.dev_item);
        }
        let stripes = self.chunks.iter().flat_map(Chunk::stripes);
        let stripes = stripes.map(|stripe| (stripe.devid, stripe.dev_uuid));
        let extents = self.extents.keys().map(|(devid, _)| (*devid, Uuid::nil()));
        let fsid = blocks.evidence.superblock.dev_item.fsid;
        for (devid, uuid) in stripes.chain(extents) {
            self.devices.entry(devid).or_insert_with(|| DevItem {
                devid: devid.into(),
                total_bytes: u64::MAX.into(),
                uuid: *uuid.as_bytes(),
                fsid,
                ..DevItem::new_zeroed()
            });
        }
    }

    /// The stripes of the chunk at `start`, in the order of devices.
    fn stripes(&self, start: u64) -> Vec<ChunkStripe> {
        let own = self.extents.iter().filter(|(_, (chunk, _))| *chunk == start);
        own.map(|((devid, physical), _)| ChunkStripe {
            devid: *devid,
            dev_uuid: self.devices.get(devid).map_or(Uuid::nil(), DevItem::uuid),
            physical: Physical(*physical),
        })
        .collect()
    }

    /// Whether the device tree has the extents of this chunk.
    fn confirms(&self, chunk: &Chunk) -> bool {
        let extent = (chunk.logical().0, chunk.bytes_per_stripe());
        let has = |it: &ChunkStripe| self.extents.get(&(it.devid, it.physical.0)) == Some(&extent);
        chunk.stripes().iter().all(has)
    }

    /// Adds a chunk if it lies on the devices and on no other chunk.
    fn insert(&self, chunks: &mut ChunkMap, chunk: Chunk) {
        let is_on_device = |stripe: &ChunkStripe| {
            let end = stripe.physical.0 + chunk.bytes_per_stripe();
            self.devices.get(&stripe.devid).is_some_and(|device| {
                device.uuid() == stripe.dev_uuid && end <= device.total_bytes.get()
            })
        };
        if chunk.stripes().iter().all(is_on_device) {
            let logical = chunk.logical();
            if let Err(error) = chunks.insert(chunk) {
                tracing::warn!("chunk at {logical}: {error}: it is left out");
            }
        }
    }
}

/// The chunk tree, put together.
fn chunk_tree(blocks: &Blocks, missing: &mut Missing<'_>) -> Attached {
    let superblock = &blocks.evidence.superblock;
    let root = Pointer {
        logical: superblock.chunk_root.get(),
        generation: superblock.chunk_root_generation.get(),
        level: superblock.chunk_root_level,
    };
    let root = Some(root).filter(|root| blocks.has(root));
    let sources = [Source { owner: CHUNK_TREE, until: u64::MAX }];
    attach(blocks, missing, root, &sources, &InUse::new())
}
