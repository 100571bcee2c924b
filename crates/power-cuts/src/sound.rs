//! Soundness after a cut, for our own checker and for `btrfs check`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_check::{Kind, Report};
use larder_device::{Device, MemoryDevice};
use larder_testkit::oracle;
use larder_volume::{OpenOptions, Volume};
use tempfile::NamedTempFile;

use crate::memory::store_difference;

/// Neither checker finds anything on the devices of a file system. Panics otherwise, with `what`.
/// Several devices get only our own checker: `btrfs check` looks for them among all attached
/// devices, and may take one from the last cut ([`assert_sound_to_btrfs`]).
#[track_caller]
pub fn assert_sound<'d>(devices: impl IntoIterator<Item = &'d MemoryDevice>, what: &str) {
    let devices: Vec<&MemoryDevice> = devices.into_iter().collect();
    assert_sound_to_larder(devices.iter().copied(), what);
    if devices.len() == 1 {
        assert_sound_to_btrfs(devices, what);
    }
}

/// Our own checker finds nothing. Panics otherwise, with `what`.
#[track_caller]
pub fn assert_sound_to_larder<'d>(devices: impl IntoIterator<Item = &'d MemoryDevice>, what: &str) {
    let report = checked(devices, what);
    assert!(report.is_clean(), "{what}: {report}");
}

/// Our own checker finds nothing but copies of tree blocks that are bad where others are good. Panics
/// otherwise, with `what`.
#[track_caller]
pub fn assert_sound_but_for_bad_copies<'d>(
    devices: impl IntoIterator<Item = &'d MemoryDevice>,
    what: &str,
) {
    let report = checked(devices, what);
    assert!(report.kinds.iter().all(|found| found.kind == Kind::BlockCopyBad), "{what}: {report}");
}

#[track_caller]
fn checked<'d>(devices: impl IntoIterator<Item = &'d MemoryDevice>, what: &str) -> Report {
    let snapshot = |device: &MemoryDevice| Arc::new(device.snapshot()) as Arc<dyn Device>;
    let devices = devices.into_iter().map(snapshot).collect();
    let volume = Volume::open(devices, &OpenOptions::default());
    let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
    let options = larder_check::Options {
        check_data_csum: true,
        threads: 1,
        ..larder_check::Options::default()
    };
    larder_check::check(&volume, &options).expect("nobody stops it")
}

/// `btrfs check` finds nothing, for any number of devices. Panics otherwise, with `what`.
#[track_caller]
pub fn assert_sound_to_btrfs<'d>(devices: impl IntoIterator<Item = &'d MemoryDevice>, what: &str) {
    let devices: Vec<&MemoryDevice> = devices.into_iter().collect();
    let found = STORED.with_borrow_mut(|stored| oracle::check(&store_all(stored, &devices), true));
    found.unwrap_or_else(|error| panic!("{what}: {error}"));
}

thread_local! {
    /// A file for each device that this thread has stored, so that little is written from one cut
    /// to the next.
    static STORED: RefCell<Vec<Stored>> = const { RefCell::new(Vec::new()) };
}

/// An image file, and the content that it has.
struct Stored {
    file: NamedTempFile,
    content: MemoryDevice,
}

impl Stored {
    fn new() -> Self {
        // In memory, if there is such a folder: the file is temporary.
        let memory = Path::new("/dev/shm");
        let file =
            if memory.is_dir() { NamedTempFile::new_in(memory) } else { NamedTempFile::new() };
        let file = file.expect("there is room for a file");
        Self { file, content: MemoryDevice::new("stored", 0) }
    }

    fn store(&mut self, device: &MemoryDevice) {
        let file = self.file.as_file();
        file.set_len(device.len_bytes()).expect("there is room for holes");
        store_difference(device, &self.content, file);
        self.content = device.snapshot();
    }
}

/// Stores devices, each in the file of the earlier device with the same index.
fn store_all(stored: &mut Vec<Stored>, devices: &[&MemoryDevice]) -> Vec<PathBuf> {
    stored.resize_with(stored.len().max(devices.len()), Stored::new);
    let stored = stored.iter_mut().zip(devices);
    let path = |(stored, device): (&mut Stored, &&MemoryDevice)| {
        stored.store(device);
        stored.file.path().to_owned()
    };
    stored.map(path).collect()
}
