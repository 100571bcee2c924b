//! Files, directories and subvolumes in the trees of a volume: as the last commit left them, or, in
//! a file system that is open for writing, as they are now.
//!
//! - [`Filesystem::open`]: from a [`Volume`](larder_volume::Volume) to its subvolumes.
//! - [`Subvolume`]: a tree of inodes. [`SubvolumeInfo`] is what its root item and references say.
//! - [`Inode`]: attributes ([`Metadata`]), names ([`Link`]), extended attributes, a symbolic link's
//!   target. An inode is seen as a [`Directory`] with [`Entries`], or as a [`File`] with data and
//!   [`Extents`].
//! - [`Inode::resolve`]: paths, across subvolumes and through symbolic links.
//! - [`Subvolume::scan`]: every inode in the order of the tree, in parts for several threads.
//! - [`Filesystem::open_writable`]: for changing it. [`Directory::create`],
//!   [`Directory::create_unnamed`], [`Directory::link`], [`Directory::unlink`],
//!   [`Directory::rename`]; [`File::write_at`], [`File::truncate`], [`File::allocate`],
//!   [`File::punch_hole`], [`File::clone_range`], [`File::copy_range`], [`File::write_encoded`];
//!   [`Inode::set_attributes`], [`Inode::set_xattr`]; [`Directory::create_subvolume`],
//!   [`Subvolume::snapshot`], [`Directory::delete_subvolume`]; [`Filesystem::sync`].
//! - [`Directory::create_whole`], [`File::rewrite`], [`Subvolume::mark_received`],
//!   [`Filesystem::subvolumes_of`]: what a receiver needs.
//! - [`Filesystem::block_groups`]: what space is used for.
//!
//! Names and paths are bytes here, and numbers are inode numbers.
//!
//! # Invariants
//! - Open for reading, the trees walked are committed ones: they never change, and no lock is held
//!   while they are read. Open for writing, they are those of the running transaction; what keeps
//!   changes apart is said in `core` and `operation`.
//! - Open for reading, the log trees that a crash leaves are not looked at
//!   ([`Filesystem::needs_log_replay`]): what was only synced file by file since the last commit is
//!   not seen, exactly as the kernel's `rescue=nologreplay` shows it. Opening for writing replays
//!   them.
//! - Data is returned only after its checksums passed, unless its file has none.
//! - Every loop that follows references (symbolic links, parents, subvolumes) is bounded, and
//!   nothing is allocated in proportion to a field of an item that was not checked against what is
//!   there.
//! - A directory opens only through the entry that its own reference names. So from a root each
//!   directory is reached in one way, and no image makes a walk endless.
//! - Permissions are the caller's to check, and what a write by a user without privileges takes
//!   from a mode ([`Inode::drop_privileges`]). A file whose content changes loses its capabilities
//!   whichever user changes it. ACLs, flags and properties are kept, passed on, and kept in step
//!   with modes.
//! - What syncing one file writes to a log follows from the inode as it is now and from the last
//!   commit alone (`log`). Where a log cannot say all that must survive, there is a commit.
//! - What a directory's index and an inode's item are to become waits in memory (`inode/delayed`),
//!   with space reserved for it. It is in the trees before a commit or a snapshot is. A reader that
//!   looks at a tree and not at its live inodes calls `Filesystem::flush_delayed` first.
//! - The extents of a file do not overlap. A compressed extent is at most 128 KiB on disk and in
//!   memory.
//! - Data is written in place only where nothing else refers to it (`file/writeback/nocow.rs`).
//!   What is shared is shared with both files locked (`file/clone.rs`).
//! - Data that is being written back stays in memory until the trees have it. No inode is locked
//!   while a device works for it.
//! - What a reader found out about the extents of an open file is kept with checksums in its inode
//!   (`file/extent_map.rs`), and forgotten where extents change (`file/extent_items.rs`) and
//!   nowhere else. All maps of a file system together are bounded.
//! - The call that would pass the limit of a quota group is refused; writing back never is
//!   (`operation/limits.rs`). Unlike in the kernel, truncating and punching always work. A limit
//!   can be passed by what a reflink shares, as in the kernel, and by the few tree blocks of names
//!   that wait for their tree.
//! - A file without a name, and a deleted subvolume, work as long as something of them is open
//!   (`inode/open.rs`, `subvolume/deleted.rs`), and go then. Ids of subvolumes and numbers of
//!   inodes only rise (`core/ids.rs`).
//! - What may touch any number of extents is done in steps of one transaction each. Each step
//!   leaves a sound file.
#![forbid(unsafe_code)]

mod core;
mod directory;
mod error;
mod file;
mod filesystem;
mod inode;
mod log;
mod operation;
pub mod parallel;
mod scan;
mod subvolume;
mod xattr;

pub use crate::core::policy::WritePolicy;
#[doc(hidden)]
pub use crate::core::tuning::{FindExtents, Queue, Reserve, Tuning};
pub use directory::entries::Entries;
pub use directory::entry::{DirEntry, Target};
pub use directory::handle::Directory;
pub use directory::listed::{Found, Listed, ListedEntry};
pub use directory::rename::RenameMode;
pub use directory::whole::WholeInode;
pub use error::{DataError, Error, ErrorKind, Result};
pub use file::allocate::AllocateMode;
pub use file::encoded::Encoded;
pub use file::extent::{DiskExtent, Extent, ExtentContent, InlineExtent};
pub use file::extents::Extents;
pub use file::handle::File;
pub use file::open::OpenFile;
pub use file::writeback::compress::WriteCompression;
pub use filesystem::handle::{Filesystem, default_subvolume_in};
pub use filesystem::options::WriteOptions;
pub use filesystem::quota::QuotaGroup;
pub use filesystem::resolve::FilePlace;
pub use filesystem::space::{BlockGroup, Capacity};
pub use filesystem::stats::{DelayedStats, ExtentMapStats, Stats};
pub use inode::attributes::SetAttributes;
pub use inode::handle::Inode;
pub use inode::links::Link;
pub use inode::metadata::{FileType, Metadata, Timestamp};
pub use inode::new::NewInode;
pub use larder_transaction::ResyncProgress;
pub use scan::{DirectoryPaths, Scan, ScannedInode};
pub use subvolume::handle::Subvolume;
pub use subvolume::info::{SubvolumeInfo, SubvolumeName};
pub use subvolume::list::{SubvolumeItems, Subvolumes};
pub use subvolume::send_guard::SendGuard;
pub use xattr::get::{Xattr, Xattrs};
pub use xattr::set::XattrMode;
