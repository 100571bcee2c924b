//! Files, directories and subvolumes in the trees of a volume: in the state of the last commit or,
//! in a file system that is open for writing, in the current state.
//!
//! The crate `larder` opens file systems, and exports the types that its users see: each is
//! documented once, here. The documentation hides what only other crates of this workspace use.
//!
//! - [`Filesystem::open`]: opens the file system on a [`Volume`](larder_volume::Volume) and gives
//!   its subvolumes. [`WriteOptions::open`]: opens it for writing.
//! - [`Subvolume`]: a tree of inodes, found and changed by their paths. [`SubvolumeInfo`] is what
//!   its root item and references say.
//! - [`Inode`]: attributes ([`Metadata`]), names ([`Link`]), extended attributes, the target of a
//!   symbolic link.
//! - [`Directory`]: an inode with [`Entries`]. Calls that take a name in it are for a file server,
//!   which says to whom a new inode belongs. The name is neither a path nor `.` nor `..`, and
//!   errors name no path.
//! - [`File`]: an inode with data, in [`Extent`]s. [`OpenFile`] is one that is open for writing.
//! - [`Subvolume::scan`]: every inode in the order of the tree, in parts for several threads.
//! - [`WholeInode::create_in`], [`File::rewrite`], [`Subvolume::mark_received`],
//!   [`Filesystem::subvolumes_of`]: for a receiver of streams.
//! - [`Filesystem::space`]: the use of space. [`Filesystem::health`]: errors.
//! - [`Error::kind`] says what an error means.
//!
//! # Invariants
//! - Open for reading, the trees are committed ones: they never change, and no lock is held while
//!   they are read. Open for writing, they are those of the running transaction; `core`,
//!   `change` and `operation` say how changes are kept apart.
//! - Open for reading, the log trees that a crash leaves are ignored
//!   ([`Filesystem::needs_log_replay`]): files that were only fsynced since the last commit look as
//!   in that commit, exactly as with the kernel's `rescue=nologreplay`. Opening for writing replays
//!   the logs.
//! - Data is returned only after its checksums passed, unless its file has none.
//! - Every loop that follows references (symbolic links, parents, subvolumes) is bounded, and
//!   nothing is allocated in proportion to a field of an item that was not checked against what is
//!   there.
//! - A directory opens only through the entry that its own reference names. So each directory is
//!   reached from a root in one way, and no image makes a walk endless.
//! - The caller checks permissions, and drops privileges ([`Inode::drop_privileges`]) when an
//!   unprivileged user writes. A file whose content changes loses its capabilities, whichever user
//!   changes it. ACLs, flags and properties are stored, inherited, and kept consistent with modes.
//! - What fsync writes to a log follows only from the inode's current state and the last commit
//!   (`log`). If a log cannot say everything that must survive, there is a commit.
//! - Changes of a directory's index and of inode items wait in memory (`live/delayed`), with space
//!   reserved for them. They go into the trees before a commit or a snapshot. A reader that looks
//!   at a tree and not at its live inodes calls `Filesystem::flush_delayed` first.
//! - The extents of a file do not overlap. A compressed extent is at most 128 KiB on disk and in
//!   memory.
//! - Data is written in place only if nothing else refers to it (`extents/nocow.rs`). Two
//!   files share extents only while both are locked (`file/clone.rs`).
//! - Data under writeback stays in memory until the trees refer to it. No inode is locked during
//!   device I/O.
//! - An open file's inode caches the extents that readers found, with their checksums
//!   (`cache/extent_map.rs`). Entries are dropped where extents change (`extents/items.rs`) and
//!   nowhere else. All maps of a file system together are bounded.
//! - The call that would exceed the limit of a quota group is refused; writeback never is
//!   (`operation/limits.rs`). Unlike in the kernel, truncating and punching always work. Two things
//!   can exceed a limit: data that a reflink shares, as in the kernel, and the few tree blocks for
//!   names that wait for their tree.
//! - A file without a name, and a deleted subvolume, work as long as any part of them is open
//!   (`live/open.rs`, `live/deleted_subvolumes.rs`), and are deleted then. Ids of subvolumes and numbers
//!   of inodes only rise (`live/ids.rs`).
//! - An operation that may touch any number of extents runs in steps of one transaction each. Each
//!   step leaves a consistent file.
#![forbid(unsafe_code)]

mod cache;
mod change;
mod changed;
mod commit;
mod compression;
mod core;
mod directory;
mod error;
mod extents;
mod file;
mod filesystem;
mod handle;
mod inode;
mod item;
mod live;
mod log;
mod operation;
mod path;
mod scan;
mod settings;
mod stats;
mod subvolume;
mod writeback;
mod xattr;

pub use crate::settings::policy::WritePolicy;
#[doc(hidden)]
pub use crate::settings::tuning::{FindExtents, Queue, Reserve, Tuning};
pub use compression::compress::WriteCompression;
pub use directory::entries::Entries;
pub use directory::entry::Entry;
pub use directory::listed::{Listed, ListedEntry, ListedInode};
pub use directory::rename::RenameMode;
pub use directory::walk::{Walk, WalkEntry};
pub use directory::whole::{MOST_WHOLE_BYTES, WholeInode};
pub use error::{DataError, Error, ErrorAbout, ErrorKind, Result};
pub use file::allocate::AllocateMode;
pub use file::cursor::FileCursor;
pub use file::encoded::Encoded;
pub use file::extents::Extents;
pub use file::open::OpenFile;
pub use file::used_extent::UsedExtent;
pub use filesystem::balance::{Balance, BalanceEnd, BalanceState, BalanceStatus};
pub use filesystem::health::{DeviceErrors, DeviceInfo, Health, MadeReadOnly};
pub use filesystem::options::WriteOptions;
pub use filesystem::quota::QuotaGroup;
pub use filesystem::replace::{ReplaceState, ReplaceStatus};
pub use filesystem::resolve::FilePlace;
pub use filesystem::scrub::{DeviceScrub, ScrubEnd, ScrubFinding, ScrubOptions, ScrubbedFile};
#[doc(hidden)]
pub use filesystem::space::BlockGroup;
pub use filesystem::space::{Capacity, GlobalReserve};
pub use filesystem::spaces::{Incomplete, Space, SpaceKind, Spaces};
pub use filesystem::tree_items::{TreeItem, TreeItems};
pub use handle::directory::Directory;
pub use handle::file::File;
pub use handle::filesystem::{Filesystem, default_subvolume_in};
pub use handle::inode::{Inode, StandsIn};
pub use handle::subvolume::Subvolume;
pub use inode::attributes::SetAttributes;
pub use item::extent::{DiskExtent, ExtentContent, InlineExtent, MappedRange};
pub use item::links::Link;
#[doc(hidden)]
pub use item::links::links_of_item;
pub use item::metadata::{FileType, Metadata, Timestamp};
pub use item::new::NewInode;
pub use item::relative::Relative;
pub use item::shown_extent::{Extent, ExtentKind};
pub use item::subvolume_info::{SubvolumeInfo, SubvolumeName};
pub use larder_jobs::{Job, JobKind, JobStatus, Jobs};
pub use larder_scrub::{Counters as ScrubCounters, Fate as ScrubFate, Subject as ScrubSubject};
#[doc(hidden)]
pub use larder_transaction::choose as choose_for_balance;
pub use larder_transaction::{
    BalanceProgress, Balanced, Chosen as ChosenGroup, Conversion, DeviceProgress, Moved,
    Replacement, ResyncProgress,
};
pub use scan::{Paths, Scan, ScannedInode};
pub use stats::{DelayedStats, ExtentMapStats, Stats};
pub use subvolume::create::SnapshotKind;
pub use subvolume::list::{SubvolumeItems, Subvolumes};
pub use subvolume::send_guard::SendGuard;
pub use xattr::get::{Xattr, Xattrs};
pub use xattr::set::XattrMode;
