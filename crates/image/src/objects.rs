//! Disks on object storage.

use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_device::{Access, Device, DeviceError};
use larder_objects::{Address, JournaledDevice, ObjectDevice, ObjectsError, Settings};

/// The sectors of a partition table in such a disk.
pub(crate) const SECTOR_BYTES: u32 = 512;

/// Opens the disk that the URL `url` leads to. It takes up to `memory_bytes`.
pub(crate) fn open(
    url: &Path,
    access: Access,
    memory_bytes: u64,
) -> Result<Arc<dyn Device>, DeviceError> {
    try_open(url, access, memory_bytes).map_err(|error| {
        let device = url.display().to_string();
        let error = io::Error::from(error);
        // The error names the store, too.
        let text = error.to_string();
        let source = match text.strip_prefix(&device).and_then(|rest| rest.strip_prefix(": ")) {
            Some(rest) => io::Error::new(error.kind(), rest.to_owned()),
            None => error,
        };
        DeviceError::Open { device, source }
    })
}

fn try_open(
    url: &Path,
    access: Access,
    memory_bytes: u64,
) -> Result<Arc<dyn Device>, ObjectsError> {
    let refused =
        |why: &str| ObjectsError::Address { text: url.display().to_string(), why: why.to_owned() };
    let text = url.to_str().ok_or_else(|| refused("a URL is UTF-8"))?;
    let address: Address = text.parse()?;
    let settings = Settings::from_environment()?;
    let store = address.store(&settings)?;
    // What is encrypted is in memory twice while it moves.
    let is_encrypted = settings.key.is_some();
    let memory_bytes = if is_encrypted { memory_bytes / 10 * 7 } else { memory_bytes };
    let options = address.options(&settings).within(memory_bytes);
    match (access, &address.state) {
        (Access::ReadOnly, state) => {
            Ok(Arc::new(ObjectDevice::open_read_only(store, state.as_ref(), &options)?))
        }
        (_, None) => Ok(match &settings.journal {
            Some(journal) => Arc::new(JournaledDevice::open(store, &options, journal)?),
            None => Arc::new(ObjectDevice::open(store, &options)?),
        }),
        (_, Some(_)) => Err(refused("a kept state can only be read")),
    }
}
