//! Chunks as they are stored: CHUNK_ITEM, DEV_EXTENT, and the superblock's array of system chunks.

use std::sync::Arc;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item::{self, ChunkHeader, DevExtent, Stripe};
use larder_format::objectid::{CHUNK_TREE, EXTENT_TREE, FIRST_CHUNK_TREE};
use larder_format::{BlockGroupFlags, DiskKey, ItemType, Key, Logical, Uuid};
use zerocopy::IntoBytes;

use super::{Chunk, ChunkError, ChunkStripe};

impl Chunk {
    /// The chunk that a CHUNK_ITEM with the key offset `logical` describes.
    pub fn from_item(
        logical: Logical,
        item: &item::Chunk<'_>,
        sectorsize: u32,
    ) -> Result<Self, ChunkError> {
        let refuse = |problem: String| Err(ChunkError { logical, problem });
        let header = item.header;
        let (len_bytes, sectorsize) = (header.length.get(), u64::from(sectorsize));
        if header.stripe_len.get() != STRIPE_LEN_BYTES {
            return refuse(format!("stripe_len is {}, not {STRIPE_LEN_BYTES}", header.stripe_len));
        }
        if !logical.0.is_multiple_of(sectorsize) || !len_bytes.is_multiple_of(sectorsize) {
            return refuse(format!("{len_bytes} bytes are not whole sectors of {sectorsize}"));
        }
        if let Some(profile) = item.flags().profile()
            && let step = profile.shape().device_step
            && step > 1
            && usize::from(header.sub_stripes.get()) != step
        {
            return refuse(format!("{profile} with {} sub_stripes", header.sub_stripes));
        }
        let stripe = |stripe: &item::Stripe| ChunkStripe {
            devid: stripe.devid.get(),
            dev_uuid: stripe.dev_uuid(),
            physical: stripe.offset(),
        };
        let stripes: Box<[ChunkStripe]> = item.stripes.iter().map(stripe).collect();
        Self::new(logical, len_bytes, item.flags(), stripes)
    }

    /// The key of its CHUNK_ITEM.
    pub fn key(&self) -> Key {
        Key::new(FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, self.logical().0)
    }

    /// Its CHUNK_ITEM.
    pub fn to_item(&self, sectorsize: u32) -> Vec<u8> {
        let stripe_len = STRIPE_LEN_BYTES as u32;
        let header = ChunkHeader {
            length: self.len_bytes().into(),
            owner: EXTENT_TREE.into(),
            stripe_len: STRIPE_LEN_BYTES.into(),
            flags: self.flags().bits().into(),
            io_align: stripe_len.into(),
            io_width: stripe_len.into(),
            sector_size: sectorsize.into(),
            num_stripes: (self.stripes().len() as u16).into(),
            sub_stripes: (self.shape().device_step as u16).into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        for stripe in self.stripes() {
            let item = Stripe {
                devid: stripe.devid.into(),
                offset: stripe.physical.0.into(),
                dev_uuid: *stripe.dev_uuid.as_bytes(),
            };
            bytes.extend(item.as_bytes());
        }
        bytes
    }

    /// The DEV_EXTENT of each of its stripes.
    pub fn device_extents(
        &self,
        chunk_tree_uuid: Uuid,
    ) -> impl Iterator<Item = (Key, DevExtent)> + use<'_> {
        self.stripes().iter().map(move |stripe| {
            let extent = DevExtent {
                chunk_tree: CHUNK_TREE.into(),
                chunk_objectid: FIRST_CHUNK_TREE.into(),
                chunk_offset: self.logical().0.into(),
                length: self.bytes_per_stripe().into(),
                chunk_tree_uuid: *chunk_tree_uuid.as_bytes(),
            };
            (Key::new(stripe.devid, ItemType::DEV_EXTENT, stripe.physical.0), extent)
        })
    }
}

/// The superblock's array of those chunks that are system chunks: each with its key.
pub fn system_chunk_array<'a>(
    chunks: impl IntoIterator<Item = &'a Arc<Chunk>>,
    sectorsize: u32,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_system = |chunk: &&Arc<Chunk>| chunk.flags().contains(BlockGroupFlags::SYSTEM);
    for chunk in chunks.into_iter().filter(is_system) {
        bytes.extend(DiskKey::from(chunk.key()).as_bytes());
        bytes.extend(chunk.to_item(sectorsize));
    }
    bytes
}
