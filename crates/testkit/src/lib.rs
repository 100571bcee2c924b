//! The kernel as oracle: file systems that the Linux kernel made and filled, and their content as
//! it shows it.
//!
//! - [`guard`]: loop devices, mounts and scratch folders that undo themselves.
//! - [`image`]: [`ImageSpec`] describes an image, [`KernelImage`] is one.
//! - [`content`]: a deterministic filler that exercises every kind of item through system calls.
//! - [`manifest`]: a comparable description of a tree, from a mount or from any other reader.
//! - [`oracle`]: the output of btrfs-progs for an image.
//! - [`matrix`]: the list of images for testing readers and checkers.
//! - [`damage`]: damage for images.
//! - [`moments`]: states within a balance of the kernel, as power cuts leave them.
//! - [`snapshots`]: random changes between snapshots, and the part of them that a stream carries.
//! - [`sparse_file`]: copies of image files that stay sparse.
//! - [`name_hash`]: directory entry names whose hashes collide.
//! - [`effort`](fn@effort) and [`seed`]: the duration and the seeds of random tests.
//!
//! Most of it needs root, loop devices and a kernel with btrfs. If one is missing, the functions
//! panic with the reason: a test must never pass because its oracle was absent.
//!
//! Guards undo in the order of their fields, and undoing never panics. Manifests do not depend on
//! the program that made them: any difference is a bug. Only [`matrix`] and
//! [`ImageSpec::checkable`] know what this kernel and btrfs-progs refuse. A random test prints its
//! seed, and the same seed repeats the run.
//!
//! Nothing here depends on another crate of the workspace, so that each can use this one in its
//! tests, and both sides of a comparison share no mistake.

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
pub mod moments;
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
