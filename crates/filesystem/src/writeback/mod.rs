//! From memory to the devices and the trees: data, delayed items, deletions that are left.

pub(crate) mod compression;
pub(crate) mod delayed;
pub(crate) mod flush;
pub(crate) mod orphan_deletion;
pub(crate) mod taken;
pub(crate) mod write_data;
