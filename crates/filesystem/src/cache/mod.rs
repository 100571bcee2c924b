//! What is in memory of a file: data that the trees do not have, and extents that they do have.

pub(crate) mod decompressed;
pub(crate) mod dirty;
pub(crate) mod dirty_space;
pub(crate) mod extent_map;
pub(crate) mod modified_extents;
pub(crate) mod page_cache;
pub(crate) mod reservation;
pub(crate) mod slices;
