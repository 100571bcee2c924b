//! File systems on object storage: paths of images may be URLs everywhere, and
//! [`ObjectDevice`] is a device for [`OpenOptions::open_devices`](crate::OpenOptions::open_devices).
//!
//! `s3://`, `gs://`, `az://` and `https://` need the feature `object-storage`; `file://` needs none.

use larder_filesystem::Filesystem;
use larder_objects::Watch;

pub use larder_objects::{
    Address, Beside, CacheFolder, Cached, Collected, DataKey, Encrypted, Facts, Finding, Info,
    JournalFacts, JournalOptions, JournaledDevice, KeySource, Keys, ObjectDevice, ObjectsError,
    Options, Policy, Problem, Requests, Settings, Slot, State, StateName, Store, StoreError,
    Verified, Writing, clone, info, rebuild, requests_of_this_process, streams, verify,
};

/// What is known of the stores that a file system lies on, if it lies on object storage: all numbers
/// are those of its own devices.
pub fn facts_of(filesystem: &Filesystem) -> Option<Facts> {
    let particulars = filesystem.volume().particulars().into_iter();
    let watches = particulars.filter_map(|it| it.downcast::<Watch>().ok());
    watches.map(|watch| watch.facts()).reduce(Facts::and)
}
