//! Reading: the ways to read a range, their order, and the error when all fail.
//!
//! # Invariants
//! - Content is returned only after it passed every check that the caller gave the means for.
//! - A repair overwrites only a copy that is known to be worse than the good one: bytes that fail
//!   their own checksum, address or structure, or an older generation. It leaves a sound tree block
//!   alone that is newer than expected, since then the expectation is old.

mod ahead;
mod block;
mod copy;
mod data;
mod heal;
mod member;
mod rebuild;
mod verify;

pub use block::{BlockExpectation, BlockRead};
pub(crate) use copy::Outdated;
pub use data::DataRead;
