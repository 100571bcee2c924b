//! Images as people have them: a file system is often only a part of a file or a disk.
//!
//! [`open`] opens what a path leads to, and returns the device that the file system is on:
//!
//! - a file or block device as a whole;
//! - a partition of it, if it has a partition table (GPT or MBR);
//! - the part of it that begins at a given byte.
//!
//! Each may be in the disk that an image file of the format qcow2 contains, or in the one whose
//! content lies in objects, to which a URL leads. A [`Place`] chooses between them. By default it is where btrfs is.
//!
//! # Invariants
//! - Nothing is guessed: where btrfs is in several places, the caller must choose one.
//! - A device that is returned ends where its partition ends, and no call passes that.
//! - Whatever a partition table says, reading it ends, takes bounded memory, and fails with a
//!   [`DeviceError`](larder_device::DeviceError) at worst.
//! - A file that names other files (backing files of qcow2) makes them readable, never writable.
//! - A partition of a disk that the kernel knows is opened through its own node. So programs can
//!   use different partitions of one disk, but only one can write to an image file.

mod find;
mod objects;
mod open;
mod place;
// The format driver knows these systems.
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
mod qcow2;
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
#[path = "qcow2/elsewhere.rs"]
mod qcow2;
mod table;

pub use open::{OBJECTS_BYTES, Opened, is_image, is_same, locate, open};
pub use place::Place;
