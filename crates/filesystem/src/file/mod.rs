//! A file's data: where it lies, and reading it.

mod checksums;
mod decompress;
mod extent;
mod extents;
mod read;
mod seek;

pub(crate) use decompress::DecompressedExtents;
pub use extent::{DiskExtent, Extent, ExtentContent, InlineExtent};
pub use extents::Extents;
