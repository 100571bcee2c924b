//! Soundness of what is left.

use std::sync::Arc;

use larder_check::{Kind, KindFindings};
use larder_device::{Device, MemoryDevice};
use larder_volume::{OpenOptions, Volume};

/// Our own checker finds nothing on the devices of a file system but copies of the superblock that a cut came
/// between. It panics if it finds more, naming `what`.
#[track_caller]
pub fn assert_sound<'d>(devices: impl IntoIterator<Item = &'d MemoryDevice>, what: &str) {
    let snapshot = |device: &MemoryDevice| Arc::new(device.snapshot()) as Arc<dyn Device>;
    let devices = devices.into_iter().map(snapshot).collect();
    let volume = Volume::open(devices, &OpenOptions::default());
    let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
    let options = larder_check::Options { threads: 1, ..larder_check::Options::default() };
    let report = larder_check::check(&volume, &options);
    let is_expected = |found: &KindFindings| found.kind == Kind::SuperblocksDisagree;
    assert!(report.kinds.iter().all(is_expected), "{what}: {report}");
}
