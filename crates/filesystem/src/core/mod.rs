//! The base of all other folders: the engine of a file system that is open for writing.

pub(crate) mod changed;
pub(crate) mod ids;
pub(crate) mod live_subvolume;
pub(crate) mod policy;
pub(crate) mod shared;
pub(crate) mod tuning;
pub(crate) mod writer;
