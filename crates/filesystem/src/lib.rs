//! Files, directories and subvolumes in the trees of a volume: as the last commit left them, or, in a file
//! system that is open for writing, as they are now.
//!
//! - [`Filesystem::open`]: from a [`Volume`](larder_volume::Volume) to its subvolumes.
//! - [`Subvolume`]: a tree of inodes. [`SubvolumeInfo`] is what its root item and references say.
//! - [`Inode`]: attributes ([`Metadata`]), names ([`Link`]), extended attributes; a directory's
//!   [`Entries`]; a file's data and [`Extents`]; a symbolic link's target.
//! - [`Inode::resolve`]: paths, across subvolumes and through symbolic links.
//! - [`Subvolume::scan`]: every inode in the order of the tree, in parts for several threads.
//! - [`Filesystem::open_writable`]: for changing it. [`Inode::create`], [`Inode::create_unnamed`], [`Inode::link`],
//!   [`Inode::unlink`], [`Inode::rename`], [`Inode::write_at`], [`Inode::truncate`],
//!   [`Inode::allocate`], [`Inode::punch_hole`], [`Inode::clone_range`], [`Inode::copy_range`],
//!   [`Inode::write_encoded`], [`Inode::set_attributes`], [`Inode::set_xattr`]; [`Inode::create_subvolume`],
//!   [`Subvolume::snapshot`], [`Inode::delete_subvolume`]; [`Filesystem::sync`].
//! - [`Inode::create_whole`], [`Subvolume::mark_received`], [`Filesystem::subvolumes_of`]: what a receiver
//!   needs.
//! - [`Filesystem::block_groups`]: what space is used for.
//!
//! Names and paths are bytes here, and numbers are inode numbers.
//!
//! # Invariants
//! - Open for reading, the trees walked are committed ones: they never change, and no lock is held while
//!   they are read. Open for writing, they are those of the running transaction; what keeps changes
//!   apart is said in `write`.
//! - Open for reading, the log trees that a crash leaves are not looked at
//!   ([`Filesystem::needs_log_replay`]): what was only synced file by file since the last commit is not
//!   seen, exactly as the kernel's `rescue=nologreplay` shows it. Opening for writing replays them.
//! - Data is returned only after its checksums passed, unless its file has none.
//! - Every loop that follows references (symbolic links, parents, subvolumes) is bounded, and nothing
//!   is allocated in proportion to a field of an item that was not checked against what is there.
#![forbid(unsafe_code)]

mod directory;
mod error;
mod file;
mod filesystem;
mod inode;
pub mod parallel;
mod path;
mod quota;
mod resolve;
mod scan;
mod space;
mod stats;
mod subvolume;
mod symlink;
mod write;
mod xattr;

pub use directory::{DirEntry, Entries, Target};
pub use error::{DataError, Error, ErrorKind, Result};
pub use file::{DiskExtent, Extent, ExtentContent, Extents, InlineExtent};
pub use filesystem::{Filesystem, default_subvolume_in};
pub use inode::{FileType, Inode, Link, Metadata, Timestamp};
pub use quota::QuotaGroup;
pub use resolve::FilePlace;
pub use scan::{DirectoryPaths, Scan, ScannedInode};
pub use space::{BlockGroup, Capacity};
pub use stats::{DelayedStats, ExtentMapStats, Stats};
pub use subvolume::{Subvolume, SubvolumeInfo, SubvolumeItems, SubvolumeName, Subvolumes};
pub use write::{
    AllocateMode, Encoded, HeldSubvolume, NewInode, OpenFile, RenameMode, SetAttributes,
    WholeInode, WriteCompression, WriteOptions, WritePolicy, XattrMode,
};
#[doc(hidden)]
pub use write::{FindExtents, Queue, Reserve, Tuning};
pub use xattr::{Xattr, Xattrs};
