//! The targets of fuzzing, independent of the fuzzer.
//!
//! Each target is a function of bytes that must return for any input: `fuzz/` passes them to
//! libFuzzer, and `tests/mutations.rs` runs them for a bounded time over mutated [`seeds`], which
//! needs only a stable compiler. Results are not judged: the targets must not panic, not hang, and
//! use no more memory than the test allows.
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
