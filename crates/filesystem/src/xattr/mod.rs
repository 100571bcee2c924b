//! Extended attributes, and those with a meaning for the file system.

pub(crate) mod capability;
pub(crate) mod get;
pub(crate) mod set;
