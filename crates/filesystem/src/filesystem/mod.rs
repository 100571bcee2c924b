//! The file system as a whole.

pub(crate) mod commit;
pub(crate) mod handle;
pub(crate) mod label;
pub(crate) mod options;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod space;
pub(crate) mod stats;
