//! What everything stands on: the engine of a file system that is open for writing.

pub(crate) mod ids;
pub(crate) mod policy;
pub(crate) mod tuning;
pub(crate) mod writer;
