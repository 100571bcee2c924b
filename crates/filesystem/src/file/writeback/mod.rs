//! Dirty data, and its way to the devices and into the trees.

pub(crate) mod compress;
pub(crate) mod compression;
pub(crate) mod compressors;
mod dirty;
pub(crate) mod dirty_inodes;
pub(crate) mod dirty_space;
pub(crate) mod flush;
pub(crate) mod nocow;
pub(crate) mod page_cache;
pub(crate) mod reservation;
pub(crate) mod slices;
pub(crate) mod taken;
pub(crate) mod write_data;
