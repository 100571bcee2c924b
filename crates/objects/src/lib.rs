//! A device of objects: its content lies in immutable objects of a few MiB on object storage (S3,
//! GCS, Azure, HTTP for reading) or in a local directory, and its state changes with one small
//! object.
//!
//! ```text
//!   manifest                    a state, the writer, the kept states: conditionally replaced
//!   copies/NUMBER               copies of the last manifests, which only a rebuilding needs
//!   flushes/EPOCH-NUMBER        the next state, and a little content: created on condition
//!   maps/EPOCH-NUMBER           pages of the map from device to segments, and their root
//!   segments/EPOCH-NUMBER       content, in the order in which it was written
//!   leases/UUID                 a reader's, for some minutes: likewise
//!   holds/UUID                  a clone's claim to a state: who deletes objects looks there
//!   keys                        of what is encrypted: who can read it
//! ```
//! Writes gather in the open segment. A full one goes to the store at once. A flush creates one
//! object with what is in the open one, on condition that no object has the flush's number: from
//! then on the device has the new state, completely. Now and then the writer replaces the manifest,
//! which lists what has changed since the last checkpoint. When that list is long, it makes the next
//! checkpoint, a new root of the map.
//!
//! A writer that follows another takes its next number, and with that ends its writing. Then it
//! replaces the manifest, with the flushes so far.
//!
//! - [`Settings`]: what the user sets in the environment for all stores.
//! - [`Store`]: objects with conditions. [`Directory`], [`Remote`]; [`Retrying`]. `Remote` needs
//!   the feature `remote`, which is a default. [`Encrypted`] seals what goes to another one.
//! - [`Timer`]: how all threads of a store measure time.
//! - [`Keys`]: the keys that open what is encrypted.
//! - [`Address`]: a URL, and which state is meant.
//! - [`ObjectDevice`]: the device. [`info`], [`verify`].
//! - [`JournaledDevice`]: the same with a journal on a disk of this machine.
//! - [`Policy`]: which [`State`]s are kept.
//! - [`InUse`], and the [`Facts`] that it gives: for whoever watches a device.
//! - [`streams`]: streams of snapshots in a store, whatever file systems they come from.
//!
//! # Invariants
//! - Every object except the manifest is created once and never changes.
//! - What a manifest or a flush in the store leads to is in the store.
//! - A device's state after a crash, at any point, is that of the last flush after the manifest, or
//!   the manifest's own: all that was
//!   written before a flush that returned, and nothing that was written after one that did not
//!   ([`Device::flushes_in_one_step`](larder_device::Device::flushes_in_one_step)).
//! - Each opening for writing ends the flushes of the epoch before, and raises the epoch in the
//!   manifest. A writer of an earlier epoch fails at its next flush, and has changed nothing since.
//! - No object is deleted that a kept state needs, or one that a clone or a lease holds; and nothing
//!   is deleted before a manifest in the store has said so for [`Info::delete_after`] seconds.
//! - What a thread uses, copies or keeps of an object has been compared with its checksum. What
//!   fails is fetched again.
//! - Memory is bounded: by the cache in memory, content that is on its way, 9 segments that are
//!   being written, and 256 pages of the map.
#![forbid(unsafe_code)]

mod address;
mod ahead;
mod cache;
mod claim;
mod clock;
mod clone;
mod codec;
mod command;
mod compact;
mod confirmed;
mod content;
mod copies;
mod deletion;
mod device;
mod doomed;
mod each;
mod error;
mod fetch;
mod flush;
mod garbage;
mod head;
mod hex;
mod hold;
mod id;
mod info;
mod journal;
mod keys;
mod lease;
mod manifest;
mod map;
mod options;
mod ownership;
mod packing;
mod past;
mod patience;
mod pool;
mod probe;
mod quantity;
mod reading;
mod rebuild;
mod requests;
mod seen;
mod segment;
mod settings;
mod state_name;
mod states;
mod store;
pub mod streams;
mod tend;
mod timer;
mod verify;
mod watch;
mod writer;

pub use address::{Address, is_url};
pub use clone::{Beside, clone};
pub use deletion::{Deletion, deletable, delete};
pub use device::{InUse, ObjectDevice};
pub use error::ObjectsError;
pub use garbage::Collected;
pub use info::{Info, LeaseInfo, info};
pub use journal::{JournaledDevice, add_journal};
pub use keys::{DataKey, KeySource, Keys, Slot};
pub use options::{CacheFolder, JournalOptions, Options};
pub use quantity::{parse_seconds, parse_size};
pub use rebuild::rebuild;
pub use requests::Requests;
pub use settings::{Cached, Settings};
pub use state_name::StateName;
pub use states::{Policy, State};
#[cfg(feature = "remote")]
pub use store::Remote;
pub use store::{
    Counting, Directory, Encrypted, Layer, Listed, Problem, Retrying, Store, StoreError, Version,
    Versioned, requests_of_this_process,
};
pub use timer::Timer;
pub use verify::{Finding, Verified, verify};
pub use watch::{Facts, JournalFacts, Watch, Writing};
