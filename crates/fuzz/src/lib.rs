//! What is fuzzed, apart from who fuzzes it.
//!
//! Each target is a function of bytes that must return whatever the bytes are: `fuzz/` hands them to
//! libFuzzer, and `tests/mutations.rs` runs them for a bounded time over mutated [`seeds`], which
//! needs nothing but a stable compiler. Nothing here judges results: not to panic, not to hang, and
//! to hold no more memory than the test allows is all that is asked.
#![forbid(unsafe_code)]

mod decompression;
mod image;
mod items;
mod replay;
pub mod seeds;
mod stream;
mod superblock;
mod tree_block;
mod walk;

pub use decompression::decompression;
pub use image::{Image, ImageError};
pub use replay::log_replay;
pub use stream::{stream_dump, stream_receive};
pub use superblock::superblock;
pub use tree_block::tree_block;
pub use walk::{CACHE_BYTES, open_and_walk};
