//! Extended attributes, and those that mean something to the file system.

pub(crate) mod acl;
pub(crate) mod capability;
pub(crate) mod get;
pub(crate) mod item;
pub(crate) mod property;
pub(crate) mod set;
