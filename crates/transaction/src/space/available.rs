//! How much more data fits.
//!
//! # Invariants
//! - A caller can reserve all available bytes at once, if no other thread reserves meanwhile, and
//!   the trees have space for the items about it. Future chunks are simulated as reservations would
//!   create them, also chunks for trees.

use larder_volume::layout::{DeviceSpace, Devices, Limits};

use super::{Space, SpaceKind};

/// Items that an operation on data may have reserved while it goes on.
const OPERATION_ITEMS: u64 = 64;
/// The most chunks that are simulated.
const MOST_IMAGINED_CHUNKS: usize = 1024;
/// If many more chunks than these would fit, several are simulated as one.
const SINGLE_CHUNKS: u64 = 16;

impl Space {
    /// Bytes of data that can be reserved, in existing chunks and in those that could be created.
    /// Space that was freed since the last commit is included.
    pub fn available_data(&self) -> u64 {
        let usage = self.usage(SpaceKind::Data);
        let spoken_for = usage.spoken_for() - usage.pinned;
        if self.is_mixed {
            let kept = usage.global_reserve + self.insertion_bytes(OPERATION_ITEMS);
            return (usage.total + usage.unallocated).saturating_sub(spoken_for + kept);
        }
        usage.total.saturating_sub(spoken_for) + self.obtainable_data()
    }

    /// Bytes of new chunks for data.
    fn obtainable_data(&self) -> u64 {
        let mut devices = self.devices.lock().clone();
        let (metadata, system) = (self.usage(SpaceKind::Metadata), self.usage(SpaceKind::System));
        let chunk_items = 1 + self.volume.devices().len() as u64;
        if system.spoken_for() + self.insertion_bytes(chunk_items) > system.total {
            let Some((after, _)) = self.imagine(SpaceKind::System, &devices) else { return 0 };
            devices = after;
        }
        let needed =
            metadata.spoken_for() + metadata.global_reserve + self.insertion_bytes(OPERATION_ITEMS);
        let (mut data_bytes, mut metadata_bytes) = (0, metadata.total);
        for _ in 0..MOST_IMAGINED_CHUNKS {
            let Some((after, bytes)) = self.imagine(SpaceKind::Data, &devices) else { break };
            let obtainable = metadata_bytes + self.obtainable_metadata(&after);
            if needed + self.headroom(&after) <= obtainable {
                (devices, data_bytes) = (after, data_bytes + bytes);
            } else if let Some((after, bytes)) = self.imagine(SpaceKind::Metadata, &devices) {
                (devices, metadata_bytes) = (after, metadata_bytes + bytes);
            } else {
                break;
            }
        }
        data_bytes
    }

    /// The devices with one more chunk, and the bytes in that.
    fn imagine(&self, kind: SpaceKind, devices: &Devices) -> Option<(Devices, u64)> {
        let profile = self.profile(kind);
        let limits = self.limits(kind, devices);
        let unallocated: u64 = devices.usable().map(DeviceSpace::unallocated_bytes).sum();
        let chunk_bytes = limits.chunk_bytes.saturating_mul(profile.copies());
        let chunks = if kind == SpaceKind::Data { unallocated / chunk_bytes.max(1) } else { 1 };
        let at_once = (chunks / SINGLE_CHUNKS).max(1);
        let limits = Limits {
            chunk_bytes: limits.chunk_bytes.saturating_mul(at_once),
            stripe_bytes: limits.stripe_bytes.saturating_mul(at_once),
            ..limits
        };
        let plan = limits.plan(profile, devices)?;
        let chunk = plan.chunk(self.next_logical(), kind.flag()).ok()?;
        let mut after = devices.clone();
        after.take(&chunk);
        let unusable = chunk.superblock_ranges().into_iter().map(|(_, len_bytes)| len_bytes);
        Some((after, chunk.len_bytes() - unusable.sum::<u64>()))
    }
}
