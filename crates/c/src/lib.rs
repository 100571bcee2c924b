//! The library for C: functions over opaque handles. `include/larder.h` is generated from here.
//!
//! # Invariants
//! - No panic reaches C: it becomes `EIO`, in one place (`outcome::run`).
//! - Only `arguments` turns pointers of C into references, and only `outcome` and the functions
//!   that close free what C holds.

#![expect(clippy::missing_safety_doc, reason = "the header says it once for all functions")]

mod arguments;
pub mod attributes;
pub mod check;
pub mod devices;
pub mod directory;
pub mod file;
pub mod filesystem;
pub mod jobs;
pub mod mkfs;
pub mod names;
pub mod outcome;
#[cfg(unix)]
pub mod streams;
pub mod subvolumes;
pub mod xattrs;
