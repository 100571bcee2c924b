//! The kernel as oracle: file systems that the Linux kernel made and filled, and what it says is in
//! them.
//!
//! - [`guard`]: loop devices, mounts and scratch folders that undo themselves.
//! - [`image`]: [`ImageSpec`] says what to make, [`KernelImage`] is what came out.
//! - [`content`]: a deterministic filler that exercises every kind of item through system calls.
//! - [`manifest`]: a comparable description of a tree, from a mount or from any other reader.
//! - [`oracle`]: what btrfs-progs says about an image.
//! - [`matrix`]: the list of images that readers and checkers are held against.
//! - [`damage`]: wounds for images.
//! - [`snapshots`]: random changes between snapshots, and what a stream carries of them.
//! - [`sparse_file`]: copies of image files that stay sparse.
//! - [`name_hash`]: directory entry names whose hashes collide.
//! - [`effort`](fn@effort) and [`seed`]: how long random tests search, and where they begin.
//!
//! Most of it needs root, loop devices and a kernel with btrfs. Where one is missing the functions
//! panic and say so: a test must never pass because its oracle was absent.
//!
//! Guards undo in the order of their fields, and undoing never panics. Manifests do not depend on
//! the program that made them: any difference is a bug. What this kernel and btrfs-progs refuse is
//! known in [`matrix`] and [`ImageSpec::checkable`] only. A random test prints its seed, and the
//! same seed repeats the run.
//!
//! Nothing here depends on another crate of the workspace, so that each of them can use this one in
//! its tests and no mistake is shared between the two sides of a comparison.

#![deny(unsafe_code)]

mod acl;
pub mod command;
pub mod content;
pub mod damage;
mod effort;
pub mod guard;
pub mod image;
mod ioctl;
pub mod manifest;
pub mod matrix;
pub mod name_hash;
pub mod oracle;
mod random;
pub mod snapshots;
pub mod sparse_file;

pub use acl::acl;
pub use content::{Content, Scale};
pub use effort::{effort, seed};
pub use guard::{KernelMount, LoopDevice, Mount, RingsOffered, Scratch};
pub use image::{
    Checkable, Checksum, Event, Feature, ImageSpec, KernelImage, Profile, Quota, SpaceCache,
};
pub use ioctl::{clone_range, dedupe_range};
pub use manifest::{Manifest, assert_same};
