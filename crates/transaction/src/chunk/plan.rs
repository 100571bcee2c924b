//! Choosing devices and sizes for a new chunk. Sizes are the kernel's, so that images written by
//! both look alike.

use std::cmp::Reverse;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item;
use larder_format::key::DiskKey;
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::superblock::SYS_CHUNK_ARRAY_SIZE;
use larder_format::{Physical, Profile};
use larder_volume::ChunkStripe;

use super::devices::{DeviceSpace, Devices};
use crate::space::SpaceKind;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// With more space in all, metadata chunks are as large as those of data.
const LARGE_FILE_SYSTEM: u64 = 50 * GIB;
/// Stripes that are shortened to stay below a chunk's limit are a multiple of this.
const STRIPE_ROUNDING: u64 = 16 * MIB;

/// How large a chunk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Logical bytes of the chunk.
    pub chunk_bytes: u64,
    /// Bytes of a stripe on one device.
    pub stripe_bytes: u64,
    /// Stripes.
    pub stripes: usize,
}

impl Limits {
    /// The limits of chunks for `kind` if the devices have `total_bytes` in all.
    pub fn new(kind: SpaceKind, total_bytes: u64, nodesize: u32) -> Self {
        let most_bytes = match kind {
            SpaceKind::Data => 10 * GIB,
            SpaceKind::Metadata if total_bytes > LARGE_FILE_SYSTEM => GIB,
            SpaceKind::Metadata => 256 * MIB,
            SpaceKind::System => 32 * MIB,
        };
        let room = match kind {
            // One more chunk must always fit into the superblock's array.
            SpaceKind::System => SYS_CHUNK_ARRAY_SIZE / 2 - size_of::<DiskKey>(),
            _ => leaf_data_size(nodesize as usize) - ITEM_HEADER_SIZE,
        };
        Self {
            chunk_bytes: most_bytes.min(total_bytes / 10),
            stripe_bytes: most_bytes.min(GIB),
            stripes: (room - size_of::<item::ChunkHeader>()) / size_of::<item::Stripe>(),
        }
    }
}

/// A chunk that can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Logical bytes.
    pub len_bytes: u64,
    /// Its stripes.
    pub stripes: Vec<ChunkStripe>,
}

/// The shape of chunks of a profile.
struct Shape {
    /// Stripes on each device.
    per_device: usize,
    /// The number of devices is a multiple of this, and at least it.
    device_step: usize,
    /// The most devices.
    most_devices: usize,
    copies: u64,
}

impl Shape {
    /// `None` for profiles with parity, which are read-only.
    fn of(profile: Profile) -> Option<Self> {
        let (per_device, device_step, most_devices) = match profile {
            Profile::Single => (1, 1, 1),
            Profile::Dup => (2, 1, 1),
            Profile::Raid0 => (1, 1, usize::MAX),
            Profile::Raid1 => (1, 2, 2),
            Profile::Raid1c3 => (1, 3, 3),
            Profile::Raid1c4 => (1, 4, 4),
            Profile::Raid10 => (1, 2, usize::MAX),
            Profile::Raid5 | Profile::Raid6 => return None,
        };
        Some(Self { per_device, device_step, most_devices, copies: profile.copies() })
    }
}

/// Plans a chunk on the devices with the most unallocated space. `None` if there is not enough.
pub fn plan(profile: Profile, devices: &Devices, limits: Limits) -> Option<Plan> {
    let shape = Shape::of(profile)?;
    let per_device = shape.per_device as u64;
    let least_bytes = STRIPE_LEN_BYTES * per_device;
    let wanted_bytes = limits.stripe_bytes * per_device;
    let hole_in = |device: &DeviceSpace| {
        let hole = device.hole(wanted_bytes).filter(|hole| hole.end - hole.start >= least_bytes)?;
        let len_bytes = (hole.end - hole.start).min(wanted_bytes);
        Some((len_bytes, device.unallocated_bytes(), device.devid, device.uuid, hole.start))
    };
    let mut places: Vec<_> = devices.usable().filter_map(hole_in).collect();
    places.sort_by_key(|(len_bytes, unallocated, devid, ..)| {
        (Reverse((*len_bytes, *unallocated)), *devid)
    });
    let most = shape.most_devices.min(limits.stripes / shape.per_device).min(places.len());
    places.truncate(most - most % shape.device_step);
    let (smallest_bytes, ..) = *places.last()?;
    let data_stripes = (places.len() * shape.per_device) as u64 / shape.copies;
    let stripe_bytes = stripe_bytes(smallest_bytes / per_device, data_stripes, limits.chunk_bytes)?;
    let mut stripes = Vec::new();
    for (_, _, devid, dev_uuid, start) in places {
        for index in 0..per_device {
            let physical = Physical(start + index * stripe_bytes);
            stripes.push(ChunkStripe { devid, dev_uuid, physical });
        }
    }
    Some(Plan { len_bytes: stripe_bytes * data_stripes, stripes })
}

/// The length of stripes if each may have `most_bytes` and all together `chunk_bytes`.
fn stripe_bytes(most_bytes: u64, data_stripes: u64, chunk_bytes: u64) -> Option<u64> {
    let bytes = if most_bytes * data_stripes > chunk_bytes {
        (chunk_bytes / data_stripes).next_multiple_of(STRIPE_ROUNDING).min(most_bytes)
    } else {
        most_bytes
    };
    let whole = bytes - bytes % STRIPE_LEN_BYTES;
    (whole > 0).then_some(whole)
}

#[cfg(test)]
mod tests {
    use larder_format::{BlockGroupFlags, Logical, Uuid};
    use larder_volume::Chunk;
    use proptest::prelude::*;

    use super::*;

    const PROFILES: [Profile; 7] = [
        Profile::Single,
        Profile::Dup,
        Profile::Raid0,
        Profile::Raid1,
        Profile::Raid1c3,
        Profile::Raid1c4,
        Profile::Raid10,
    ];

    fn devices(lens_bytes: &[u64]) -> Devices {
        let device = |(devid, len)| DeviceSpace::new(devid, Uuid::from_u128(devid.into()), len);
        (1..).zip(lens_bytes.iter().copied()).map(device).collect()
    }

    fn limits(kind: SpaceKind, lens_bytes: &[u64]) -> Limits {
        Limits::new(kind, lens_bytes.iter().sum(), 16384)
    }

    #[test]
    fn sizes_are_the_kernels() {
        let one = |kind, profile, len: u64| {
            plan(profile, &devices(&[len]), limits(kind, &[len])).map(|plan| plan.len_bytes)
        };
        assert_eq!(one(SpaceKind::Data, Profile::Single, 4 * GIB), Some(416 * MIB));
        assert_eq!(one(SpaceKind::Data, Profile::Single, 100 * GIB), Some(GIB));
        assert_eq!(one(SpaceKind::Metadata, Profile::Dup, 100 * GIB), Some(GIB));
        assert_eq!(one(SpaceKind::Metadata, Profile::Dup, 10 * GIB), Some(256 * MIB));
        assert_eq!(one(SpaceKind::System, Profile::Dup, 10 * GIB), Some(32 * MIB));
        assert_eq!(one(SpaceKind::Data, Profile::Single, 256 * MIB), Some(32 * MIB));
    }

    #[test]
    fn the_emptiest_devices_are_chosen() {
        let lens = [2 * GIB, 8 * GIB, 4 * GIB];
        let plan = plan(Profile::Raid1, &devices(&lens), limits(SpaceKind::Data, &lens)).unwrap();
        let ids: Vec<u64> = plan.stripes.iter().map(|stripe| stripe.devid).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn devices_that_are_gone_get_nothing() {
        let device = |devid| DeviceSpace::new(devid, Uuid::from_u128(devid.into()), GIB);
        let mut gone = device(1);
        gone.is_usable = false;
        let devices: Devices = [gone, device(2)].into_iter().collect();
        let limits = limits(SpaceKind::Data, &[GIB, GIB]);
        assert_eq!(plan(Profile::Raid1, &devices, limits), None);
        assert!(plan(Profile::Single, &devices, limits).is_some());
    }

    proptest! {
        /// Chunks of any profile fill devices until nothing is left, and never overlap.
        #[test]
        fn devices_fill_up(
            lens in prop::collection::vec(8_u64..3000, 1..7),
            profile in prop::sample::select(PROFILES.to_vec()),
            removed in prop::collection::vec(any::<bool>(), 8),
        ) {
            let lens: Vec<u64> = lens.into_iter().map(|mib| mib * MIB + 4096 * 3).collect();
            let mut devices = devices(&lens);
            let limits = limits(SpaceKind::Data, &lens);
            let mut logical = 1 << 20;
            let mut removed = removed.into_iter().cycle();
            for _ in 0..60 {
                let Some(plan) = plan(profile, &devices, limits) else { break };
                let flags = BlockGroupFlags::DATA | profile.flags();
                let chunk = Chunk::new(Logical(logical), plan.len_bytes, flags, plan.stripes).unwrap();
                logical += plan.len_bytes;
                let before = devices.clone();
                devices.take(&chunk);
                for stripe in chunk.stripes() {
                    let device = devices.get(stripe.devid).unwrap();
                    prop_assert!(stripe.physical.0 >= MIB);
                    prop_assert!(stripe.physical.0 + chunk.bytes_per_stripe() <= device.total_bytes);
                }
                let used = |devices: &Devices| devices.usable().map(DeviceSpace::bytes_used).sum::<u64>();
                let taken = chunk.bytes_per_stripe() * chunk.stripes().len() as u64;
                prop_assert_eq!(used(&devices) - used(&before), taken);
                if removed.next() == Some(true) {
                    devices.retire(&chunk);
                    prop_assert_eq!(used(&devices), used(&before));
                    devices.give(&chunk);
                    prop_assert_eq!(used(&devices), used(&before));
                    break;
                }
            }
        }
    }
}
