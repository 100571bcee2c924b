//! The sizes of chunks in use: the kernel's, so that images written by both look alike.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item;
use larder_format::key::DiskKey;
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::superblock::SYS_CHUNK_ARRAY_SIZE;
use larder_format::{Profile, SpaceKind};

use super::devices::Devices;
use super::places::{Places, Plan};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The largest chunk for data.
pub const MAX_DATA_BYTES: u64 = 10 * GIB;
/// The largest stripe.
pub const MAX_STRIPE_BYTES: u64 = GIB;
/// With more space in all, metadata chunks are as large as stripes of data.
const LARGE_FILE_SYSTEM: u64 = 50 * GIB;
/// Stripes that are shortened to stay below a chunk's limit are a multiple of this.
const STRIPE_ROUNDING: u64 = 16 * MIB;

/// Tree blocks that stay free for the chunk tree in a file system that is as small as it can be. With
/// fewer than 16, and 8 for each device, Linux 6.18 makes a block group for the chunk tree whenever it
/// removes an empty one, and goes on with that for ever.
pub fn spare_system_blocks(devices: usize) -> u64 {
    16 + 12 * devices as u64
}

/// The largest chunk for metadata if the devices have `total_bytes` in all.
pub fn max_metadata_bytes(total_bytes: u64) -> u64 {
    if total_bytes > LARGE_FILE_SYSTEM { GIB } else { 256 * MIB }
}

/// The most stripes of a chunk whose item fits into a leaf, or into the superblock for a system
/// chunk.
pub fn max_stripes(kind: SpaceKind, nodesize: u32) -> usize {
    let room = match kind {
        // One more chunk must always fit into the superblock's array.
        SpaceKind::System => SYS_CHUNK_ARRAY_SIZE / 2 - size_of::<DiskKey>(),
        _ => leaf_data_size(nodesize as usize) - ITEM_HEADER_SIZE,
    };
    (room - size_of::<item::ChunkHeader>()) / size_of::<item::Stripe>()
}

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
            SpaceKind::Data => MAX_DATA_BYTES,
            SpaceKind::Metadata => max_metadata_bytes(total_bytes),
            SpaceKind::System => 32 * MIB,
        };
        Self {
            chunk_bytes: most_bytes.min(total_bytes / 10),
            stripe_bytes: most_bytes.min(MAX_STRIPE_BYTES),
            stripes: max_stripes(kind, nodesize),
        }
    }

    /// Plans the largest chunk of a profile within the limits. `None` if there is not enough space.
    pub fn plan(&self, profile: Profile, devices: &Devices) -> Option<Plan> {
        let stripe_bytes = STRIPE_LEN_BYTES..=self.stripe_bytes;
        let places = Places::choose(profile, devices, self.stripes, stripe_bytes)?;
        let (room_bytes, data_stripes) = (places.room_bytes(), places.data_stripes());
        let bytes = if room_bytes * data_stripes > self.chunk_bytes {
            let shortened = (self.chunk_bytes / data_stripes).next_multiple_of(STRIPE_ROUNDING);
            shortened.min(room_bytes)
        } else {
            room_bytes
        };
        let whole = bytes - bytes % STRIPE_LEN_BYTES;
        (whole > 0).then(|| places.plan(whole))
    }
}

#[cfg(test)]
mod tests {
    use larder_format::{BlockGroupFlags, Logical, Uuid};
    use proptest::prelude::*;

    use super::*;
    use crate::layout::DeviceSpace;

    fn plan(profile: Profile, devices: &Devices, limits: Limits) -> Option<Plan> {
        limits.plan(profile, devices)
    }

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
            plan(profile, &devices(&[len]), limits(kind, &[len])).map(|plan| plan.len_bytes())
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
        let chunk = plan.chunk(Logical(0), BlockGroupFlags::DATA).unwrap();
        let ids: Vec<u64> = chunk.stripes().iter().map(|stripe| stripe.devid).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn chunks_with_parity_take_all_devices() {
        let lens = [4 * GIB, 8 * GIB, 4 * GIB, GIB];
        let stripes_and_data = |profile| {
            let plan = plan(profile, &devices(&lens), limits(SpaceKind::Data, &lens)).unwrap();
            let chunk = plan.chunk(Logical(0), BlockGroupFlags::DATA).unwrap();
            (chunk.stripes().len(), chunk.data_stripes())
        };
        assert_eq!(stripes_and_data(Profile::Raid5), (4, 3));
        assert_eq!(stripes_and_data(Profile::Raid6), (4, 2));
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
            profile in prop::sample::select(Profile::ALL.to_vec()),
            removed in prop::collection::vec(any::<bool>(), 8),
        ) {
            let lens: Vec<u64> = lens.into_iter().map(|mib| mib * MIB + 4096 * 3).collect();
            let mut devices = devices(&lens);
            let limits = limits(SpaceKind::Data, &lens);
            let mut logical = 1 << 20;
            let mut removed = removed.into_iter().cycle();
            for _ in 0..60 {
                let Some(plan) = plan(profile, &devices, limits) else { break };
                let chunk = plan.chunk(Logical(logical), BlockGroupFlags::DATA).unwrap();
                logical += chunk.len_bytes();
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
