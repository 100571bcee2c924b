//! How much more data fits.
//!
//! # Invariants
//! - A caller can reserve all available bytes at once, if no other thread reserves meanwhile, and
//!   the trees have space for the items about it: also in chunks that reservations would make
//!   (`future.rs`).

use super::{Space, SpaceKind};

/// Items that an operation on data may have reserved while it goes on.
const OPERATION_ITEMS: u64 = 64;
/// The most steps of the simulation, each of which makes one chunk or several.
const MAX_STEPS: usize = 1024;

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
        let mut future = self.future(self.devices.lock().clone());
        let (metadata, system) = (self.usage(SpaceKind::Metadata), self.usage(SpaceKind::System));
        let chunk_items = 1 + self.volume.devices().len() as u64;
        let needs_system = system.spoken_for() + self.insertion_bytes(chunk_items) > system.total;
        if needs_system && future.add(SpaceKind::System).is_none() {
            return 0;
        }
        let needed =
            metadata.spoken_for() + metadata.global_reserve + self.insertion_bytes(OPERATION_ITEMS);
        let (mut data_bytes, mut metadata_bytes) = (0, metadata.total);
        for _ in 0..MAX_STEPS {
            let mut with_data = future.clone();
            let Some(bytes) = with_data.add_some(SpaceKind::Data) else { break };
            let obtainable = metadata_bytes + with_data.clone().add_all(SpaceKind::Metadata);
            if needed + self.headroom(with_data.devices()) <= obtainable {
                (future, data_bytes) = (with_data, data_bytes + bytes);
            } else if let Some(bytes) = future.add(SpaceKind::Metadata) {
                metadata_bytes += bytes;
            } else {
                break;
            }
        }
        data_bytes
    }
}
