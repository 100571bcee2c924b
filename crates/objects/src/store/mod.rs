//! Stores: named immutable objects, and one that is replaced on a condition.

#[cfg(feature = "remote")]
mod aws;
mod based;
mod counting;
mod directory;
mod encrypted;
mod error;
#[cfg(feature = "remote")]
mod http;
mod interface;
mod layer;
mod pass_on;
#[cfg(feature = "remote")]
mod refusal;
#[cfg(feature = "remote")]
mod remote;
mod retry;
#[cfg(feature = "remote")]
mod roots;

pub(crate) use based::Based;
pub use counting::{Counting, requests_of_this_process};
pub use directory::Directory;
pub use encrypted::Encrypted;
pub use error::{Problem, StoreError};
pub use interface::{Listed, Store, Version, Versioned};
pub use layer::Layer;
#[cfg(feature = "remote")]
pub use remote::Remote;
pub use retry::Retrying;
