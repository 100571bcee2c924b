//! Opening.

use std::path::Path;
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};
use larder_volume::Volume;

use crate::{Filesystem, Result};

/// Tree blocks kept in memory unless told otherwise.
const CACHE_BYTES: usize = 128 << 20;

/// How to open a file system: for reading, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    write: bool,
    degraded: bool,
    cache_bytes: usize,
}

impl OpenOptions {
    /// For reading, with all devices.
    pub fn new() -> Self {
        Self { write: false, degraded: false, cache_bytes: CACHE_BYTES }
    }

    /// For writing too. What is done is durable after [`Filesystem::sync`] or [`File::sync`](crate::File::sync);
    /// dropping the last handle without it leaves what the last commit made durable. Nobody else can
    /// have the devices open for writing meanwhile.
    ///
    /// Opening fails with [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) where a sound file system
    /// can only be read: with RAID5 or RAID6, with log trees that a crash left, with features that
    /// allow reading only.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
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
            let access = if self.write { Access::ReadWrite } else { Access::ReadOnly };
            devices.push(Arc::new(FileDevice::open(path, access)?));
        }
        self.open_devices(devices)
    }

    /// Opens the file system on `devices`, in any order.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        let options = larder_volume::OpenOptions {
            degraded: self.degraded,
            write: self.write,
            ..Default::default()
        };
        let volume = Arc::new(Volume::open(devices, &options)?);
        let open = if self.write {
            larder_filesystem::Filesystem::open_writable
        } else {
            larder_filesystem::Filesystem::open
        };
        Ok(Filesystem::new(open(volume, self.cache_bytes)?))
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}
