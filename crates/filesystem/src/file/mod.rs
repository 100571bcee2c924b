//! A file's data: where it lies, and reading it.

mod checksums;
mod decompress;
mod extent;
mod extent_map;
mod extents;
mod read;
mod seek;
mod shared;

pub(crate) use decompress::DecompressedExtents;
pub use extent::{DiskExtent, Extent, ExtentContent, InlineExtent};
pub(crate) use extent_map::{ExtentMap, ExtentMaps};
pub use extents::Extents;
pub(crate) use extents::Waiting;
