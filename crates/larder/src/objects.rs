//! File systems on object storage: paths of images may be URLs everywhere, and
//! [`ObjectDevice`] is a device for [`OpenOptions::open_devices`](crate::OpenOptions::open_devices).
//!
//! `s3://`, `gs://`, `az://` and `https://` need the feature `object-storage`; `file://` needs none.

pub use larder_objects::{
    Address, Beside, CacheFolder, Cached, Collected, DataKey, Encrypted, Facts, Finding, Info,
    JournalFacts, JournalOptions, JournaledDevice, KeySource, Keys, ObjectDevice, ObjectsError,
    Options, Policy, Problem, Requests, Settings, Slot, State, StateName, Store, StoreError,
    Verified, Writing, clone, facts_of_this_process, info, rebuild, requests_of_this_process,
    streams, verify,
};
