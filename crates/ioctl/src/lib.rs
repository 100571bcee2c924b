//! The ioctls of a mounted btrfs for which no library has safe functions. [`abi`] is for servers
//! that answer requests, the functions are for programs that make them.
//!
//! Requests and structures are those of `linux/btrfs.h`. The same functions work on the kernel's
//! btrfs and on a Larder mount, which gets requests that FUSE cannot pass on in an
//! [envelope](abi::Envelope). Most need the rights of root, or, on Larder mounts, of the user who
//! mounted.
//!
//! # How requests reach a Larder mount
//! FUSE passes a server only as many bytes as the number of a request counts. It passes neither the
//! target of a pointer nor descriptors. So there are three ways:
//! - A request that fits goes to both file systems alike.
//! - A request with pointers (snapshots, searches with their own buffer, space, paths of inodes,
//!   files of addresses), one with a number in place of a pointer (pausing a balance), or one that
//!   the kernel keeps to itself (extents of files), goes to a Larder mount in an
//!   [envelope](abi::Envelope): a request of Larder's own. It comes through an open file, from any
//!   user, and the server checks the caller's permissions.
//! - A stream needs more than one message and one answer, and takes hours. It goes over a
//!   [`channel`]: ioctls return the abstract name of a socket and a [token](channel::Token) for this
//!   inode, and over the socket go frames of at most 1 MiB. A channel is only for root and the user
//!   who runs the server, and occupies no request of the kernel's. No descriptors of the mount are
//!   passed: a server that used one would wait for itself.
//!
//! # Invariants
//! - Each request is called with a structure of the size in its number. Structures consist of plain
//!   numbers; pointers in them come from borrowed slices, which outlive the call.
//! - Answers of the kernel are checked before use, since a FUSE server may have given them.

pub mod abi;
mod balance;
mod call;
pub mod channel;
mod control;
mod data;
mod devices;
mod extents;
mod filesystem;
mod health;
mod inode;
mod invalid;
mod replace;
mod scrub;
mod search;
mod send;
mod subvolume;

pub use balance::{
    BalanceRun, balance, balance_status, cancel_balance, pause_balance, resume_balance,
};
pub use call::set_io_priority;
pub use control::DeviceList;
pub use data::{EncodedExtent, clone_file, clone_range, write_encoded};
pub use devices::{add_device, complete_redundancy, other_work, remove_device, resize_device};
pub use extents::{MappedExtent, MappedExtents, mapped_extents};
pub use filesystem::{
    DeviceInfo, FilesystemInfo, SpaceUsage, devices, filesystem_info, label, set_label, spaces,
    sync,
};
pub use health::{DeviceErrors, Health, device_errors, health, metrics};
pub use inode::{FilePlace, inode_paths, places_of};
pub use replace::{
    REPLACE_STARTED, ReplaceProgress, cancel_replace, replace_progress, resume_replace,
    start_replace,
};
pub use scrub::{ScrubProgress, cancel_scrub, scrub, scrub_limit, scrub_progress, set_scrub_limit};
pub use search::{
    Item, Items, directory_path, items, items_since, last_inode, subvolume_path, subvolumes_of,
};
pub use send::{KernelSend, newest_stream_version, send};
pub use subvolume::{
    SubvolumeInfo, create_snapshot, create_subvolume, delete_subvolume, delete_subvolume_by_id,
    is_read_only, set_default_subvolume, set_read_only, set_received, subvolume_id, subvolume_info,
};
