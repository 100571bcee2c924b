//! Makes btrfs file systems, empty or filled from a directory.
//!
//! There are no transactions here. Items of a tree arrive in the order of their keys and fill
//! blocks from the leaves up (`tree`); addresses are assigned in ascending order (`space`).
//! Subvolumes are filled first, one after the other, while the checksum tree grows with them
//! (`populate`); the trees that describe the result, including themselves, are planned to a fixed
//! point (`finish`).
//!
//! # Invariants
//! - Until the superblocks are written, last of all and after a flush, no device has one: an
//!   interrupted mkfs leaves no file system.
//! - The same source, options, uuids and time make the same bytes, whatever the number of threads:
//!   threads only prepare data, which one thread places in order.
//! - Memory does not grow with the size of files: it holds names, a few dozen bytes for each entry
//!   and extent, and a few megabytes of data for each thread.
//! - Every block group fills from start to end, around the places of superblocks, and records of
//!   allocations ascend by address.
//! - In a file system that is as small as it can be, block groups are cut and move together once all
//!   but the last trees are there; these get a block group of exactly their size.
//! - Block groups do not touch each other. The places of superblocks stay free on every stripe.
#![forbid(unsafe_code)]

mod checksums;
mod claim;
mod content;
mod error;
mod estimate;
mod features;
mod finish;
mod image;
mod make;
mod options;
mod populate;
mod probe;
mod progress;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "for files of a source"))]
mod settings;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "for files of a source"))]
mod source;
mod space;
mod summary;
mod target;
mod tree;
mod wipe;
mod writer;

pub use claim::Claimed;
pub use error::MkfsError;
pub use features::{FeatureChoice, Features};
pub use make::{mkfs, mkfs_on};
pub use options::{
    InodeFlagsSpec, MkfsOptions, Owner, SubvolumeSpec, parse_checksum, parse_profile,
};
pub use progress::Progress;
pub use summary::{DeviceSummary, GroupSummary, Summary};
