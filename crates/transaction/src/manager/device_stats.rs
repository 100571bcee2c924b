//! The errors of devices, stored in DEV_STATS items of the device tree.
//!
//! # Invariants
//! - An item has the counters of its commit. A device without errors needs none.
//! - Errors alone cause no commit in the background. The next commit writes them, and so does the
//!   last.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::item::DevStatsItem;
use larder_format::objectid::DEV_STATS;
use larder_format::{ItemType, Key};
use larder_volume::{DeviceErrors, Volume};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::items::Items;
use crate::tree_items::TreeItems;

/// The errors of devices.
#[derive(Debug)]
pub(super) struct DeviceStats {
    volume: Arc<Volume>,
    dev_tree: Arc<LiveTree>,
    /// The counters in the items, by the ids of the devices.
    written: Mutex<BTreeMap<u64, DeviceErrors>>,
}

impl DeviceStats {
    /// Reads the items, and sets the counters of each device of `volume`.
    pub(super) fn load(volume: Arc<Volume>, dev_tree: Arc<LiveTree>) -> Result<Self> {
        let tree = TreeItems::new(dev_tree.clone());
        let mut written = BTreeMap::new();
        for device in volume.devices().iter() {
            let data = tree.get(key_of(device.devid()))?.unwrap_or_default();
            let errors = DeviceErrors::of_item(&data);
            device.set_earlier_errors(errors);
            written.insert(device.devid(), errors);
        }
        Ok(Self { volume, dev_tree, written: Mutex::new(written) })
    }

    /// Whether the counters differ from the items.
    pub(super) fn is_dirty(&self) -> bool {
        *self.written.lock() != self.current()
    }

    /// Updates the items. Part of a commit.
    pub(super) fn write(&self) -> Result<()> {
        let mut written = self.written.lock();
        let current = self.current();
        for (devid, errors) in &current {
            if written.get(devid).copied().unwrap_or_default() != *errors {
                let item = DevStatsItem::from(*errors);
                self.dev_tree.put(key_of(*devid), item.as_bytes())?;
            }
        }
        *written = current;
        Ok(())
    }

    fn current(&self) -> BTreeMap<u64, DeviceErrors> {
        self.volume.devices().iter().map(|device| (device.devid(), device.errors())).collect()
    }
}

fn key_of(devid: u64) -> Key {
    Key::new(DEV_STATS, ItemType::PERSISTENT_ITEM, devid)
}
