//! File systems on object storage: paths of images may be URLs everywhere, and
//! [`ObjectDevice`] is a device for [`OpenOptions::open_devices`](crate::OpenOptions::open_devices).
//!
//! `s3://`, `gs://`, `az://` and `https://` need the feature `object-storage`; `file://` needs none.

use std::sync::Arc;

use larder_filesystem::Filesystem;
use larder_objects::InUse;

pub use larder_objects::{
    Address, Beside, CacheFolder, Cached, Collected, DataKey, Encrypted, Facts, Finding, Info,
    JournalFacts, JournalOptions, JournaledDevice, KeySource, Keys, ObjectDevice, ObjectsError,
    Options, Policy, Problem, Requests, Settings, Slot, State, StateName, Store, StoreError,
    Verified, Writing, clone, info, rebuild, requests_of_this_process, streams, verify,
};

/// What is known of the stores that a file system lies on, if it lies on object storage: all numbers
/// are those of its own devices.
pub fn facts_of(filesystem: &Filesystem) -> Option<Facts> {
    in_use(filesystem).map(|device| device.facts()).reduce(Facts::and)
}

/// Deletes what nothing needs any more on the stores that a file system lies on, while it is in use.
/// `None` if it lies on none, or is open for reading.
///
/// # Errors
/// Those of [`ObjectDevice::collect_garbage`].
pub fn collect_garbage(filesystem: &Filesystem) -> Result<Option<Collected>, ObjectsError> {
    let mut all: Option<Collected> = None;
    for device in in_use(filesystem) {
        let collected = device.collect_garbage()?;
        all = all.into_iter().chain(collected).reduce(Collected::and);
    }
    Ok(all)
}

fn in_use(filesystem: &Filesystem) -> impl Iterator<Item = Arc<InUse>> {
    filesystem.volume().particulars().into_iter().filter_map(|it| it.downcast().ok())
}
