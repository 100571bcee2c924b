//! A file system in memory, which a power cut may end at any time, and the content of its files.

use std::sync::Arc;

use larder::device::MemoryDevice;
use larder::{File, Filesystem, OpenOptions, Subvolume};
use larder_power_cuts::load;
use larder_testkit::{Content, ImageSpec, KernelImage};

/// A file system that the kernel filled. It commits only when a test says so.
pub(crate) fn file_system(name: &str) -> (Filesystem, Subvolume, Arc<MemoryDevice>) {
    let image = KernelImage::build(&ImageSpec::new(name), &Content::new(71));
    let memory = Arc::new(load(&image.devices()[0]));
    let options = OpenOptions::new().write(true).commit_interval(None);
    let fs = options.open_devices(vec![memory.clone()]).unwrap();
    let root = fs.subvolume("/").unwrap();
    (fs, root, memory)
}

/// The file has these bytes and no more.
#[track_caller]
pub(crate) fn assert_has(file: &File, expected: &[u8]) {
    let mut content = vec![0xAA; expected.len() + 1];
    let len = file.read_at(&mut content, 0).unwrap();
    assert_eq!((len, file.len_bytes()), (expected.len(), expected.len() as u64));
    assert!(content[..len] == *expected, "it has other bytes");
}
