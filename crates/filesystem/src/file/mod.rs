//! Regular files: their extents, reading and writing.

pub(crate) mod allocate;
pub(crate) mod clone;
pub(crate) mod cursor;
pub(crate) mod decompress;
pub(crate) mod encoded;
pub(crate) mod extents;
pub(crate) mod open;
pub(crate) mod punch;
pub(crate) mod read;
pub(crate) mod read_live;
pub(crate) mod truncate;
pub(crate) mod used_extent;
pub(crate) mod write;
