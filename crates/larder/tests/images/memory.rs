//! File systems in memory.

use std::path::PathBuf;
use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder_format::Profile;
use larder_mkfs::{MkfsOptions, mkfs};
use larder_power_cuts::load;
use larder_testkit::Scratch;

/// The devices of a file system.
pub(crate) struct Memory(pub(crate) Vec<Arc<MemoryDevice>>);

impl Memory {
    /// A new file system with `folder/file`.
    pub(crate) fn new(data: Profile, metadata: Profile, devices: usize) -> Self {
        println!("data {data}, metadata {metadata} on {devices}");
        let scratch = Scratch::new();
        let source = scratch.path().join("source");
        std::fs::create_dir_all(source.join("folder")).unwrap();
        std::fs::write(source.join("folder/file"), vec![7; 100_000]).unwrap();
        let options = MkfsOptions {
            data_profile: Some(data),
            metadata_profile: Some(metadata),
            root_dir: Some(source),
            ..MkfsOptions::default()
        };
        let file = |number| scratch.sparse_file(&format!("device-{number}"), 256 << 20);
        let files: Vec<PathBuf> = (0..devices).map(file).collect();
        mkfs(&files, &options).unwrap_or_else(|error| panic!("{error}"));
        Self(files.iter().map(|file| Arc::new(load(file))).collect())
    }

    /// An independent copy.
    pub(crate) fn copy(&self) -> Self {
        Self(self.0.iter().map(|device| Arc::new(device.snapshot())).collect())
    }

    /// The devices, to be opened.
    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.0.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }
}
