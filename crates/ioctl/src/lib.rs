//! What a mounted btrfs offers by ioctl and no library offers as safe functions. [`abi`] is for
//! servers that answer requests, the functions are for programs that make them.
//!
//! Requests and structures are those of `linux/btrfs.h`. The same functions ask the kernel's btrfs
//! and a mount of larder's, which is asked in an [envelope](abi::Envelope) for what FUSE cannot
//! pass on. Most need the rights of root, or, on larder's mounts, of the user who mounted.
//!
//! # How a mount of larder's is asked
//! FUSE hands a server only as many bytes as the number of a request counts. It passes on neither
//! what lies at the end of a pointer nor descriptors. So there are three ways:
//! - A request that fits goes to both alike.
//! - A request with pointers (snapshots, searches with a buffer of their own, space, paths of
//!   inodes, files of addresses) goes to a mount of larder's in an [envelope](abi::Envelope): a
//!   request of our own. It comes through an open file, from any user, and the server holds it to
//!   the caller's permissions.
//! - A stream is no matter of one request and one answer, and takes hours. It goes over a
//!   [`channel`]: an ioctl tells the abstract name of a socket and which inode this is, and over
//!   the socket go frames of at most 1 MiB. A channel is for root and the user who runs the server
//!   only, and occupies no request of the kernel's. It names inodes by subvolume and number. No
//!   descriptors are passed: a server that used one of its own mount would wait for itself.
//!
//! # Invariants
//! - Each request is called with a structure of the size in its number, and structures are of plain
//!   numbers; pointers in them are made from borrowed slices and live as long as the call.
//! - Answers of the kernel are checked before they are believed: it may be a FUSE server that
//!   answers.

pub mod abi;
mod call;
pub mod channel;
mod data;
mod filesystem;
mod health;
mod inode;
mod search;
mod send;
mod subvolume;

use std::io;

pub use data::{EncodedExtent, clone_file, clone_range, write_encoded};
pub use filesystem::{
    DeviceInfo, FilesystemInfo, SpaceUsage, devices, filesystem_info, label, set_label, spaces,
    sync,
};
pub use health::{DeviceErrors, Health, device_errors, health};
pub use inode::{FilePlace, inode_paths, places_of};
pub use search::{Item, directory_path, items, last_inode, subvolume_path, subvolumes_of};
pub use send::{KernelSend, newest_stream_version, send};
pub use subvolume::{
    SubvolumeInfo, create_snapshot, create_subvolume, delete_subvolume, delete_subvolume_by_id,
    is_read_only, set_default_subvolume, set_read_only, set_received, subvolume_id, subvolume_info,
};

/// What cannot be passed on or believed.
fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
