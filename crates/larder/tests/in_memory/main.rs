//! Random operations on file systems in memory, against a model: no root and no kernel, so that
//! every change can be tested at once. `writing` and `fsync` do the same with the kernel as the
//! oracle.
//!
//! `LARDER_EFFORT` multiplies the work, and `LARDER_SEED` changes it.

mod beside;
#[path = "../support/data.rs"]
mod data;
mod doubt;
mod full;
#[path = "../support/model.rs"]
mod model;
mod objects;
mod operations;
#[path = "../support/played.rs"]
mod played;
mod power_cuts;
mod sharing;
#[path = "../support/synced.rs"]
mod synced;
#[path = "../support/view.rs"]
mod view;
mod workloads;

use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{Filesystem, OpenOptions};
use larder_mkfs::{MkfsOptions, mkfs_on};

/// Enough for one test, including copies on two devices.
const DEVICE_BYTES: u64 = 512 << 20;

/// New devices with an empty file system.
fn make(count: usize, options: &MkfsOptions) -> Vec<Arc<MemoryDevice>> {
    make_of(DEVICE_BYTES, count, options)
}

/// The same, each with this length.
fn make_of(len_bytes: u64, count: usize, options: &MkfsOptions) -> Vec<Arc<MemoryDevice>> {
    let device = |number| Arc::new(MemoryDevice::new(format!("device-{number}"), len_bytes));
    let devices: Vec<Arc<MemoryDevice>> = (0..count).map(device).collect();
    mkfs_on(&as_dyn(&devices), options).unwrap_or_else(|error| panic!("{error}"));
    devices
}

fn as_dyn(devices: &[Arc<MemoryDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
}

/// Opens for writing. It commits only when a test says so.
fn open(devices: Vec<Arc<dyn Device>>, options: OpenOptions) -> Filesystem {
    let options = options.write(true).commit_interval(None);
    options.open_devices(devices).unwrap_or_else(|error| panic!("{error}"))
}

/// Small nodes, so that trees are high, and items for holes.
fn small_nodes() -> MkfsOptions {
    let mut options = MkfsOptions { node_size_bytes: Some(4096), ..MkfsOptions::default() };
    options.features.apply("^no-holes").expect("a known feature");
    options
}
