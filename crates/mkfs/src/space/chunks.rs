//! Allocating chunks: choosing devices, sizes and places.
//!
//! Each device fills from start to end, so that its unallocated space is one range at its end.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::superblock::{DEVICE_RESERVED_BYTES, SYS_CHUNK_ARRAY_SIZE};
use larder_format::{Logical, Physical, Profile, Uuid, item};
use larder_volume::{Chunk, ChunkStripe};

use crate::settings::{Settings, Use, min_devices};
use crate::{Features, MkfsError};

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// File systems above this size have metadata chunks of up to 1 GiB.
const LARGE_BYTES: u64 = 50 * GIB;
/// Smallest metadata chunk, unless less is asked for.
const MIN_METADATA_BYTES: u64 = 32 * MIB;
/// Largest chunk on one device.
const MAX_STRIPE_BYTES: u64 = GIB;
/// Largest chunk.
const MAX_CHUNK_BYTES: u64 = 10 * GIB;
/// Smallest chunk of mixed metadata and data: these are for small devices, from 16 MiB on.
const MIN_MIXED_BYTES: u64 = 8 * MIB;
const SYSTEM_STRIPE_BYTES: u64 = 8 * MIB;
/// The same, beside mixed chunks.
const MIXED_SYSTEM_STRIPE_BYTES: u64 = 4 * MIB;
/// Stripe of the data chunk of an empty file system.
const EMPTY_DATA_STRIPE_BYTES: u64 = 8 * MIB;

/// The unallocated space of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRoom {
    pub(crate) devid: u64,
    pub(crate) uuid: Uuid,
    pub(crate) total_bytes: u64,
    /// End of the last chunk on it.
    pub(crate) used_until: u64,
}

impl DeviceRoom {
    pub(crate) fn new(devid: u64, uuid: Uuid, total_bytes: u64) -> Self {
        Self { devid, uuid, total_bytes, used_until: DEVICE_RESERVED_BYTES }
    }

    fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.used_until)
    }
}

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
    /// No larger than the content.
    Exact,
}

#[derive(Clone, Debug)]
pub(crate) struct ChunkAllocator {
    devices: Vec<DeviceRoom>,
    appetite: Appetite,
    /// Sum of the devices' sizes.
    total_bytes: u64,
    next_logical: u64,
}

impl ChunkAllocator {
    pub(crate) fn new(devices: Vec<DeviceRoom>, appetite: Appetite) -> Self {
        let total_bytes = devices.iter().map(|device| device.total_bytes).sum();
        Self { devices, appetite, total_bytes, next_logical: DEVICE_RESERVED_BYTES }
    }

    pub(crate) fn devices(&self) -> &[DeviceRoom] {
        &self.devices
    }

    /// Makes a chunk of the size that its use needs, or of what space is left.
    pub(crate) fn allocate(&mut self, usage: Use, settings: &Settings) -> Result<Chunk, MkfsError> {
        let profile = settings.profile(usage);
        let no_space = || MkfsError::NoSpace { what: name_of(usage) };
        let chosen = self.choose_devices(usage, profile, settings).ok_or_else(no_space)?;
        let per_device = stripes_per_device(profile);
        let stripes = chosen.len() as u64 * per_device;
        let data_stripes = data_stripes(profile, stripes);
        let room = chosen.iter().map(|&at| self.devices[at].free_bytes()).min().unwrap_or(0);
        let capacity_bytes = self.total_bytes / stripes * data_stripes;
        let wanted = self.wanted_bytes(usage, settings, data_stripes, capacity_bytes);
        let wanted = wanted.div_ceil(data_stripes);
        let stripe_bytes =
            wanted.next_multiple_of(MIB).min(room / per_device / MIB * MIB).min(MAX_STRIPE_BYTES);
        if stripe_bytes == 0 {
            return Err(no_space());
        }
        let mut placed = Vec::new();
        for at in chosen {
            let device = &mut self.devices[at];
            for _ in 0..per_device {
                placed.push(ChunkStripe {
                    devid: device.devid,
                    dev_uuid: device.uuid,
                    physical: Physical(device.used_until),
                });
                device.used_until += stripe_bytes;
            }
        }
        self.expect_less(usage, stripe_bytes * data_stripes);
        let logical = Logical(self.next_logical);
        let len_bytes = stripe_bytes * data_stripes;
        self.next_logical = after(logical.0 + len_bytes);
        let flags = settings.block_group_flags(usage);
        Ok(Chunk::new(logical, len_bytes, flags, placed).expect("made as chunks must be"))
    }

    /// Indices of the devices with the most room, as many as the profile uses.
    fn choose_devices(
        &self,
        usage: Use,
        profile: Profile,
        settings: &Settings,
    ) -> Option<Vec<usize>> {
        let least_free = MIB * stripes_per_device(profile);
        let mut chosen: Vec<usize> = (0..self.devices.len())
            .filter(|&at| self.devices[at].free_bytes() >= least_free)
            .collect();
        chosen.sort_by_key(|&at| (u64::MAX - self.devices[at].free_bytes(), at));
        let most = match profile {
            Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => max_stripes(usage, settings),
            Profile::Raid10 => max_stripes(usage, settings) / 2 * 2,
            _ => min_devices(profile),
        };
        chosen.truncate(most);
        if profile == Profile::Raid10 {
            chosen.truncate(chosen.len() / 2 * 2);
        }
        (chosen.len() >= min_devices(profile)).then_some(chosen)
    }

    /// The preferred length of a new chunk in logical bytes, if the devices have room for
    /// `capacity_bytes`: only a small part of that, since balancing needs room for several chunks.
    fn wanted_bytes(
        &self,
        usage: Use,
        settings: &Settings,
        data_stripes: u64,
        capacity_bytes: u64,
    ) -> u64 {
        let Appetite { data_bytes, metadata_bytes, sizes } = self.appetite;
        let exact = sizes == Sizes::Exact;
        match usage {
            Use::System => system_stripe_bytes(settings) * data_stripes,
            Use::Metadata if exact => metadata_bytes.clamp(MIB, MAX_CHUNK_BYTES),
            Use::Metadata if sizes == Sizes::LeastMetadata => {
                metadata_bytes.clamp(min_metadata_bytes(settings), MAX_CHUNK_BYTES)
            }
            Use::Metadata => {
                let most = if self.total_bytes > LARGE_BYTES { GIB } else { 256 * MIB };
                (capacity_bytes / 20).clamp(min_metadata_bytes(settings), most)
            }
            Use::Data if exact => data_bytes.clamp(MIB, MAX_CHUNK_BYTES),
            Use::Data if data_bytes == 0 => EMPTY_DATA_STRIPE_BYTES * data_stripes,
            Use::Data => {
                let most = MAX_CHUNK_BYTES.min(capacity_bytes / 10);
                most.max(EMPTY_DATA_STRIPE_BYTES * data_stripes)
            }
        }
    }

    fn expect_less(&mut self, usage: Use, bytes: u64) {
        let expected = match usage {
            Use::System => return,
            Use::Metadata => &mut self.appetite.metadata_bytes,
            Use::Data => &mut self.appetite.data_bytes,
        };
        *expected = expected.saturating_sub(bytes);
    }

    /// The chunk cut to `used` bytes, at least one stripe of 64 KiB on each device. The rest goes
    /// back to the devices, so `chunk` must be the last one allocated. `None` if there is nothing
    /// to cut.
    pub(crate) fn trim(&mut self, chunk: &Chunk, used: u64) -> Option<Chunk> {
        let data_stripes = chunk.data_stripes() as u64;
        let stripe_bytes = used.div_ceil(data_stripes).next_multiple_of(STRIPE_LEN_BYTES);
        let stripe_bytes = stripe_bytes.max(STRIPE_LEN_BYTES);
        let (old_bytes, len_bytes) = (chunk.bytes_per_stripe(), stripe_bytes * data_stripes);
        if stripe_bytes >= old_bytes {
            return None;
        }
        // If a device has two stripes, the second comes last, and a gap stays between them.
        for stripe in chunk.stripes() {
            let device = self.devices.iter_mut().find(|device| device.devid == stripe.devid);
            let device = device.expect("chunks lie on known devices");
            device.used_until = stripe.physical.0 + stripe_bytes;
        }
        self.next_logical = after(chunk.logical().0 + len_bytes);
        let trimmed = Chunk::new(chunk.logical(), len_bytes, chunk.flags(), chunk.stripes());
        Some(trimmed.expect("a part of a chunk that is one"))
    }

    pub(crate) fn shrink_devices(&mut self) {
        for device in &mut self.devices {
            device.total_bytes = device.used_until;
        }
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

fn name_of(usage: Use) -> &'static str {
    match usage {
        Use::System => "system",
        Use::Metadata => "metadata",
        Use::Data => "data",
    }
}

fn stripes_per_device(profile: Profile) -> u64 {
    if profile == Profile::Dup { 2 } else { 1 }
}

fn data_stripes(profile: Profile, stripes: u64) -> u64 {
    (stripes - profile.parities()) / profile.copies()
}

/// The most stripes of a chunk whose item fits a leaf, or the superblock for a system chunk.
fn max_stripes(usage: Use, settings: &Settings) -> usize {
    let room = match usage {
        // Room for two: the kernel adds one before it removes another.
        Use::System => SYS_CHUNK_ARRAY_SIZE / 2 - size_of::<larder_format::DiskKey>(),
        _ => settings.node_size - HEADER_SIZE - ITEM_HEADER_SIZE,
    };
    (room - item::Chunk::len_bytes(0)) / size_of::<item::Stripe>()
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
    let per_device = |(usage, logical_bytes): (Use, u64)| {
        let profile = settings.profile(usage);
        let spread = match profile {
            Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => devices as u64,
            Profile::Raid10 => devices as u64 / 2 * 2,
            _ => profile.copies(),
        };
        let stripe_bytes = logical_bytes.div_ceil(data_stripes(profile, spread));
        stripe_bytes.saturating_add(MIB).saturating_mul(stripes_per_device(profile))
    };
    let uses = [Use::System, Use::Metadata, Use::Data].into_iter().zip(logical_bytes);
    let uses = uses.filter(|(usage, _)| !(mixed && *usage == Use::Data));
    uses.map(per_device).fold(DEVICE_RESERVED_BYTES, u64::saturating_add)
}
