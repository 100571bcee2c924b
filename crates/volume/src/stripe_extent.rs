//! The raid stripe tree: chunks whose data lies where that tree says.
//!
//! With the feature RAID_STRIPE_TREE the parts of a data extent are listed in RAID_STRIPE items, for
//! every profile but single and those with parity. Such an extent is a small chunk of its own, all of
//! whose stripes are mirrors. The tree itself is read by whoever knows trees: a [`StripeLookup`].
//!
//! Writes go where the chunk says, and the writer records that in the tree; so does the kernel unless
//! a device has zones, which are not supported. Reads without a lookup therefore find data as well.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use larder_format::feature::IncompatFlags;
use larder_format::item::RaidStride;
use larder_format::{BlockGroupFlags, Logical, Physical, Profile, Uuid};

use crate::chunk::{Chunk, ChunkError, ChunkStripe};
use crate::read::ReadError;
use crate::volume::{Unmapped, Volume};

/// Finds RAID_STRIPE items.
pub trait StripeLookup: fmt::Debug + Send + Sync {
    /// The extent that holds `logical` ([`Chunk::from_raid_stripe`]), if the tree has one.
    fn extent_at(
        &self,
        logical: Logical,
    ) -> Result<Option<Arc<Chunk>>, Box<dyn Error + Send + Sync>>;
}

impl Chunk {
    /// The extent of a RAID_STRIPE item with the key (`logical`, type, `len_bytes`).
    pub fn from_raid_stripe(
        logical: Logical,
        len_bytes: u64,
        strides: &[RaidStride],
        sectorsize: u32,
    ) -> Result<Self, ChunkError> {
        let sectorsize = u64::from(sectorsize);
        if !logical.0.is_multiple_of(sectorsize) || !len_bytes.is_multiple_of(sectorsize) {
            let problem = format!("the {len_bytes} bytes of its raid stripe extent are no sectors");
            return Err(ChunkError { logical, problem });
        }
        let profile = match strides.len() {
            1 => Profile::Single,
            2 => Profile::Raid1,
            3 => Profile::Raid1c3,
            4 => Profile::Raid1c4,
            count => {
                let problem = format!("its raid stripe extent has {count} strides");
                return Err(ChunkError { logical, problem });
            }
        };
        let stripe = |stride: &RaidStride| ChunkStripe {
            devid: stride.devid.get(),
            dev_uuid: Uuid::nil(),
            physical: Physical(stride.physical.get()),
        };
        let stripes: Box<[ChunkStripe]> = strides.iter().map(stripe).collect();
        Self::new(logical, len_bytes, BlockGroupFlags::DATA | profile.flags(), stripes)
    }
}

impl Volume {
    /// Has reads of data that the raid stripe tree maps ask `lookup`. Only the first call counts.
    pub fn set_stripe_lookup(&self, lookup: Box<dyn StripeLookup>) {
        let _ = self.stripe_lookup.set(lookup);
    }

    /// The chunk or extent that says where `logical` is read.
    pub(crate) fn read_chunk_at(&self, logical: Logical) -> Result<Arc<Chunk>, ReadError> {
        let unmapped = Unmapped { logical, len_bytes: 1 };
        let chunk = self.chunk_at(logical).ok_or(unmapped)?;
        let Some(lookup) = self.stripe_lookup.get().filter(|_| self.has_stripe_extents(&chunk))
        else {
            return Ok(chunk);
        };
        let extent = lookup
            .extent_at(logical)
            .map_err(|source| ReadError::StripeLookup { logical, source })?;
        Ok(extent.filter(|extent| extent.contains(logical)).ok_or(unmapped)?)
    }

    fn has_stripe_extents(&self, chunk: &Chunk) -> bool {
        self.superblock.has_incompat(IncompatFlags::RAID_STRIPE_TREE)
            && chunk.flags() & BlockGroupFlags::TYPES == BlockGroupFlags::DATA
            && chunk.profile() != Profile::Single
            && !chunk.has_parity()
    }
}
