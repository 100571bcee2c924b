//! Defaults for writing, and choices between implementations.

pub(crate) mod inspector;
pub(crate) mod policy;
pub(crate) mod tuning;
