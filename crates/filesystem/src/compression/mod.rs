//! Compressing data, by several threads.

pub(crate) mod compress;
pub(crate) mod compressors;
