//! Opening.

use std::path::Path;
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};
use larder_volume::Volume;

use crate::{Filesystem, Result};

/// Tree blocks kept in memory unless told otherwise.
const CACHE_BYTES: usize = 128 << 20;

/// How to open a file system. It is opened for reading.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    degraded: bool,
    cache_bytes: usize,
}

impl OpenOptions {
    /// For reading, with all devices.
    pub fn new() -> Self {
        Self { degraded: false, cache_bytes: CACHE_BYTES }
    }

    /// Also when devices are missing, as long as what is there is enough to read everything.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// The most bytes of tree blocks to keep in memory: 128 MiB unless set, 64 blocks at least.
    #[must_use]
    pub fn cache_bytes(mut self, cache_bytes: usize) -> Self {
        self.cache_bytes = cache_bytes;
        self
    }

    /// Opens the file system on the image files and block devices at `paths`, in any order.
    pub fn open<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> Result<Filesystem> {
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for path in paths {
            devices.push(Arc::new(FileDevice::open(path, Access::ReadOnly)?));
        }
        self.open_devices(devices)
    }

    /// Opens the file system on `devices`, in any order.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        let options = larder_volume::OpenOptions { degraded: self.degraded, ..Default::default() };
        let volume = Arc::new(Volume::open(devices, &options)?);
        Ok(Filesystem::new(larder_filesystem::Filesystem::open(volume, self.cache_bytes)?))
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}
