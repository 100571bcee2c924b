//! What a mounted btrfs offers by ioctl and no library offers as safe functions.
//!
//! Requests and structures are those of `linux/btrfs.h`. Most need the rights of root.
//!
//! # Invariants
//! - Each request is called with the structure that it is defined for, and structures are of plain
//!   numbers; pointers in them are made from borrowed slices and live as long as the call.
//! - Answers of the kernel are checked before they are believed: it may be a FUSE server that answers.

mod data;
mod search;
mod subvolume;

use std::io;

pub use data::{EncodedExtent, clone_range, write_encoded};
pub use search::{subvolume_path, subvolumes_of};
pub use subvolume::{
    SubvolumeInfo, create_snapshot, create_subvolume, set_read_only, set_received, subvolume_info,
};

/// `BTRFS_IOCTL_MAGIC`.
const MAGIC: u8 = 0x94;

/// What cannot be passed on or believed.
fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
