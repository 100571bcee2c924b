//! What went wrong with devices, kept in DEV_STATS items of the device tree.
//!
//! # Invariants
//! - An item says what was counted up to its commit. A device without errors needs none.
//! - Errors alone cause no commit in the background: the next has them, and that at the end.

use larder_format::item::DevStatsItem;
use larder_format::objectid::DEV_STATS;
use larder_format::{ItemType, Key};
use larder_volume::{DeviceErrors, Volume, VolumeDevice};
use zerocopy::IntoBytes;

use super::TransactionManager;
use crate::error::Result;
use crate::items::Items;
use crate::tree_items::TreeItems;

/// Says to each device of `volume` what the items say of it, and returns that.
pub(super) fn load(volume: &Volume, tree: &TreeItems) -> Result<Vec<DeviceErrors>> {
    let load_one = |device: &VolumeDevice| {
        let data = tree.get(key_of(device.devid()))?.unwrap_or_default();
        let errors = DeviceErrors::of_item(&data);
        device.set_earlier_errors(errors);
        Ok(errors)
    };
    volume.devices().iter().map(load_one).collect()
}

impl TransactionManager {
    /// Whether the items say something else than the counters.
    pub(super) fn has_new_device_errors(&self) -> bool {
        *self.device_errors.lock() != self.current_device_errors()
    }

    /// Brings the items up to date. The door is closed.
    pub(super) fn write_device_errors(&self) -> Result<()> {
        let mut written = self.device_errors.lock();
        let current = self.current_device_errors();
        for (at, device) in self.volume.devices().iter().enumerate() {
            if written[at] != current[at] {
                let item = DevStatsItem::from(current[at]);
                self.trees.dev.put(key_of(device.devid()), item.as_bytes())?;
            }
        }
        *written = current;
        Ok(())
    }

    fn current_device_errors(&self) -> Vec<DeviceErrors> {
        self.volume.devices().iter().map(VolumeDevice::errors).collect()
    }
}

fn key_of(devid: u64) -> Key {
    Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, devid)
}
