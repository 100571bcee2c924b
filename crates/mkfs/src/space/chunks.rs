//! Allocating chunks: choosing devices, sizes and places.
//!
//! Each device fills from start to end, so that its unallocated space is one range at its end. In a
//! file system that is as small as it can be, places before it may stay free.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::superblock::DEVICE_RESERVED_BYTES;
use larder_format::{Logical, Physical, SpaceKind};
use larder_volume::layout::{
    Devices, MAX_DATA_BYTES, MAX_STRIPE_BYTES, Places, max_metadata_bytes, max_stripes,
    spare_system_blocks,
};
use larder_volume::{Chunk, ChunkStripe};

use crate::settings::Settings;
use crate::{Features, MkfsError};

const MIB: u64 = 1024 * 1024;
/// Smallest metadata chunk, unless less is asked for.
const MIN_METADATA_BYTES: u64 = 32 * MIB;
/// Smallest chunk of mixed metadata and data: these are for small devices, from 16 MiB on.
const MIN_MIXED_BYTES: u64 = 8 * MIB;
const SYSTEM_STRIPE_BYTES: u64 = 8 * MIB;
/// The same, beside mixed chunks.
const MIXED_SYSTEM_STRIPE_BYTES: u64 = 4 * MIB;
/// Tree blocks of the chunk tree in a file system that is as small as it can be.
const CHUNK_TREE_BLOCKS: u64 = 8;
/// In such a file system, metadata chunks are at most this part of what is expected: they move as a
/// whole, and each leaves at most so much free.
const EXACT_METADATA_PARTS: u64 = 8;
/// Stripe of the data chunk of an empty file system.
const EMPTY_DATA_STRIPE_BYTES: u64 = 8 * MIB;

/// The expected size of the content in logical bytes, which determines the size of chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Appetite {
    pub(crate) data_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) sizes: Sizes,
}

/// How large chunks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// As on the kernel's file systems.
    #[default]
    Usual,
    /// The same, except that those for metadata are no larger than the content needs, if that is
    /// more than the kernel's smallest. The rest is for data.
    LeastMetadata,
    /// No larger than the content, once it is known how much that is.
    Exact,
}

#[derive(Clone, Debug)]
pub(crate) struct ChunkAllocator {
    devices: Devices,
    appetite: Appetite,
    /// Sum of the devices' sizes.
    total_bytes: u64,
    next_logical: u64,
}

impl ChunkAllocator {
    pub(crate) fn new(devices: Devices, appetite: Appetite) -> Self {
        let total_bytes = devices.iter().map(|device| device.total_bytes).sum();
        Self { devices, appetite, total_bytes, next_logical: DEVICE_RESERVED_BYTES }
    }

    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Makes a chunk of the size that its use needs, or of what space is left.
    pub(crate) fn allocate(
        &mut self,
        usage: SpaceKind,
        settings: &Settings,
    ) -> Result<Chunk, MkfsError> {
        let max_stripes = max_stripes(usage, settings.node_size as u32);
        let sizes = MIB..=u64::MAX;
        let places = Places::choose(settings.profile(usage), &self.devices, max_stripes, sizes);
        let places = places.ok_or_else(|| MkfsError::NoSpace { what: usage.name() })?;
        let capacity_bytes = self.total_bytes / places.stripes() as u64 * places.data_stripes();
        let wanted = self.wanted_bytes(usage, settings, places.data_stripes(), capacity_bytes);
        let unit_bytes = if self.appetite.sizes == Sizes::Exact { STRIPE_LEN_BYTES } else { MIB };
        Ok(self.make(usage, &places, wanted, unit_bytes, settings))
    }

    /// Makes a chunk of so many bytes, or of what space is left.
    pub(crate) fn allocate_exactly(
        &mut self,
        usage: SpaceKind,
        len_bytes: u64,
        settings: &Settings,
    ) -> Result<Chunk, MkfsError> {
        let max_stripes = max_stripes(usage, settings.node_size as u32);
        let (profile, sizes) = (settings.profile(usage), STRIPE_LEN_BYTES..=u64::MAX);
        let places = Places::choose(profile, &self.devices, max_stripes, sizes);
        let places = places.ok_or_else(|| MkfsError::NoSpace { what: usage.name() })?;
        Ok(self.make(usage, &places, len_bytes, STRIPE_LEN_BYTES, settings))
    }

    /// Makes a chunk of the wanted length, in whole units for each stripe.
    fn make(
        &mut self,
        usage: SpaceKind,
        places: &Places,
        wanted_bytes: u64,
        unit_bytes: u64,
        settings: &Settings,
    ) -> Chunk {
        let wanted = wanted_bytes.div_ceil(places.data_stripes()).next_multiple_of(unit_bytes);
        let room_bytes = places.room_bytes() / unit_bytes * unit_bytes;
        let plan = places.plan(wanted.min(room_bytes).min(MAX_STRIPE_BYTES));
        let chunk = plan.chunk(Logical(self.next_logical), settings.block_group_types(usage));
        let chunk = chunk.expect("made as chunks must be");
        self.devices.take(&chunk);
        self.expect_less(usage, chunk.len_bytes());
        self.next_logical = after(chunk.end().0);
        chunk
    }

    /// The preferred length of a new chunk in logical bytes, if the devices have room for
    /// `capacity_bytes`: only a small part of that, since balancing needs room for several chunks.
    fn wanted_bytes(
        &self,
        usage: SpaceKind,
        settings: &Settings,
        data_stripes: u64,
        capacity_bytes: u64,
    ) -> u64 {
        let Appetite { data_bytes, metadata_bytes, sizes } = self.appetite;
        let exact = sizes == Sizes::Exact;
        match usage {
            SpaceKind::System if exact => {
                let spare = spare_system_blocks(self.devices.iter().count());
                (spare + CHUNK_TREE_BLOCKS) * settings.node_size as u64
            }
            SpaceKind::System => system_stripe_bytes(settings) * data_stripes,
            SpaceKind::Metadata if exact => {
                let most = max_metadata_bytes(self.total_bytes);
                (metadata_bytes / EXACT_METADATA_PARTS).clamp(MIB, most)
            }
            SpaceKind::Metadata if sizes == Sizes::LeastMetadata => {
                metadata_bytes.clamp(min_metadata_bytes(settings), MAX_DATA_BYTES)
            }
            SpaceKind::Metadata => {
                let most = max_metadata_bytes(self.total_bytes);
                (capacity_bytes / 20).clamp(min_metadata_bytes(settings), most)
            }
            SpaceKind::Data if exact => {
                // The rest of a small device is for metadata, which comes after it.
                data_bytes.min(capacity_bytes / 4 * 3).clamp(MIB, MAX_DATA_BYTES)
            }
            SpaceKind::Data if data_bytes == 0 => EMPTY_DATA_STRIPE_BYTES * data_stripes,
            SpaceKind::Data => {
                let most = MAX_DATA_BYTES.min(capacity_bytes / 10);
                most.max(EMPTY_DATA_STRIPE_BYTES * data_stripes)
            }
        }
    }

    fn expect_less(&mut self, usage: SpaceKind, bytes: u64) {
        let expected = match usage {
            SpaceKind::System => return,
            SpaceKind::Metadata => &mut self.appetite.metadata_bytes,
            SpaceKind::Data => &mut self.appetite.data_bytes,
        };
        *expected = expected.saturating_sub(bytes);
    }

    /// The chunk cut to `used` bytes, at least one stripe of 64 KiB on each device. The rest goes
    /// back to the devices. `None` if there is nothing to cut.
    pub(crate) fn cut(&mut self, chunk: &Chunk, used: u64) -> Option<Chunk> {
        let data_stripes = chunk.data_stripes() as u64;
        let stripe_bytes = used.div_ceil(data_stripes).next_multiple_of(STRIPE_LEN_BYTES);
        let stripe_bytes = stripe_bytes.max(STRIPE_LEN_BYTES);
        if stripe_bytes >= chunk.bytes_per_stripe() {
            return None;
        }
        let len_bytes = stripe_bytes * data_stripes;
        let cut = Chunk::new(chunk.logical(), len_bytes, chunk.flags(), chunk.stripes());
        let cut = cut.expect("a part of a chunk that is one");
        self.replace(chunk, &cut);
        Some(cut)
    }

    /// The chunk with a stripe at the lowest place on its device with room for it. `None` if it is
    /// there.
    pub(crate) fn move_down(&mut self, chunk: &Chunk, devid: u64, from: Physical) -> Option<Chunk> {
        let is_it = |stripe: &ChunkStripe| stripe.devid == devid && stripe.physical == from;
        let stripe = chunk.stripes().iter().find(|stripe| is_it(stripe))?;
        let lowest = self.devices.lowest_place(chunk, stripe)?;
        if lowest >= from.0 {
            return None;
        }
        let moved = |stripe: &ChunkStripe| {
            let physical = if is_it(stripe) { Physical(lowest) } else { stripe.physical };
            ChunkStripe { physical, ..*stripe }
        };
        let stripes: Vec<_> = chunk.stripes().iter().map(moved).collect();
        let moved = Chunk::new(chunk.logical(), chunk.len_bytes(), chunk.flags(), stripes);
        let moved = moved.expect("it only has other places");
        self.replace(chunk, &moved);
        Some(moved)
    }

    fn replace(&mut self, chunk: &Chunk, by: &Chunk) {
        self.devices.give(chunk);
        self.devices.take(by);
    }

    pub(crate) fn shrink_devices(&mut self) {
        self.devices.shrink();
    }
}

fn system_stripe_bytes(settings: &Settings) -> u64 {
    let mixed = settings.has(Features::MIXED_GROUPS);
    if mixed { MIXED_SYSTEM_STRIPE_BYTES } else { SYSTEM_STRIPE_BYTES }
}

fn min_metadata_bytes(settings: &Settings) -> u64 {
    let mixed = settings.has(Features::MIXED_GROUPS);
    if mixed { MIN_MIXED_BYTES } else { MIN_METADATA_BYTES }
}

/// The start of the next chunk. Chunks do not touch, so that a contiguous range is in one chunk.
fn after(end: u64) -> u64 {
    (end + 1).next_multiple_of(MIB)
}

/// Bytes that every device needs for an empty file system, if all are of one size.
pub(crate) fn min_device_bytes(settings: &Settings, devices: usize) -> u64 {
    let data_bytes = EMPTY_DATA_STRIPE_BYTES;
    let (system_bytes, metadata_bytes) =
        (system_stripe_bytes(settings), min_metadata_bytes(settings));
    stripes_bytes(settings, devices, [system_bytes, metadata_bytes, data_bytes])
}

/// Bytes that every device should have for content of this appetite, if all are of one size.
pub(crate) fn needed_device_bytes(settings: &Settings, devices: usize, appetite: Appetite) -> u64 {
    let Appetite { data_bytes, metadata_bytes, .. } = appetite;
    let metadata_bytes = metadata_bytes.max(min_metadata_bytes(settings));
    let system_bytes = system_stripe_bytes(settings);
    let bytes = [system_bytes, metadata_bytes, data_bytes.max(EMPTY_DATA_STRIPE_BYTES)];
    // A chunk may not be full when the next of its kind is made.
    let needed = stripes_bytes(settings, devices, bytes);
    needed.saturating_add(needed / 4).next_multiple_of(MIB)
}

/// Bytes on every device for one chunk of so many logical bytes for system, metadata and data.
fn stripes_bytes(settings: &Settings, devices: usize, logical_bytes: [u64; 3]) -> u64 {
    let mixed = settings.has(Features::MIXED_GROUPS);
    let per_device = |(usage, logical_bytes): (SpaceKind, u64)| {
        let shape = settings.profile(usage).shape();
        let stripes = shape.devices_of(devices) * shape.stripes_per_device;
        let stripe_bytes = logical_bytes.div_ceil(shape.data_stripes(stripes) as u64);
        stripe_bytes.saturating_add(MIB).saturating_mul(shape.stripes_per_device as u64)
    };
    let uses =
        [SpaceKind::System, SpaceKind::Metadata, SpaceKind::Data].into_iter().zip(logical_bytes);
    let uses = uses.filter(|(usage, _)| !(mixed && *usage == SpaceKind::Data));
    uses.map(per_device).fold(DEVICE_RESERVED_BYTES, u64::saturating_add)
}
