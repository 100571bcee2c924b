//! Regular files: their extents, reading and writing.

pub(crate) mod allocate;
pub(crate) mod checksums;
pub(crate) mod clone;
pub(crate) mod cursor;
pub(crate) mod decompress;
pub(crate) mod decompressed;
pub(crate) mod encoded;
pub(crate) mod extent;
pub(crate) mod extent_items;
pub(crate) mod extent_map;
pub(crate) mod extents;
pub(crate) mod handle;
pub(crate) mod modified_extents;
pub(crate) mod open;
pub(crate) mod punch;
pub(crate) mod read;
pub(crate) mod read_live;
pub(crate) mod shown_extent;
pub(crate) mod truncate;
pub(crate) mod used_extent;
pub(crate) mod write;
pub(crate) mod writeback;
