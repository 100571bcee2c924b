//! btrfs in user space.
//!
//! Larder reads and writes the on-disk format of btrfs in image files and on block devices, without
//! a kernel that knows btrfs and without root. A file system is opened once and used by any number
//! of threads: every handle is cheap to clone, `Send` and `Sync`.
//!
//! ```no_run
//! # fn main() -> Result<(), larder::Error> {
//! let fs = larder::OpenOptions::new().open(["disk.img"])?; // more devices: more paths
//! let root = fs.subvolume("/")?;
//! for entry in root.open_directory("notes")?.entries()? {
//!     let entry = entry?;
//!     println!("{} {}", entry.inode_number(), entry.name().display());
//! }
//! let file = root.open_file("notes/today.txt")?;
//! let mut start = [0; 512];
//! let len = file.read_at(&mut start, 0)?;
//! # let _ = len;
//! # Ok(())
//! # }
//! ```
//!
//! Opened for writing, it is changed the same way, also by many threads at once:
//!
//! ```no_run
//! # fn main() -> Result<(), larder::Error> {
//! use larder::SnapshotKind;
//!
//! let fs = larder::OpenOptions::new().write(true).open(["disk.img"])?;
//! let root = fs.subvolume("/")?;
//! let file = root.create("notes/today.txt", 0o644)?;
//! file.write_at(b"bread, butter", 0)?;
//! root.snapshot("snapshots/today", SnapshotKind::ReadOnly)?; // milliseconds, any size
//! fs.sync()?; // everything: a commit
//! # Ok(())
//! # }
//! ```
//!
//! - [`OpenOptions`] opens a [`Filesystem`]; that has [`Subvolume`]s.
//! - A [`Subvolume`] finds an [`Inode`] by path or number: a [`File`], a [`Directory`] or another.
//! - [`mkfs`](mod@mkfs) makes file systems, and [`check`](mod@check) proves them sound.
//! - [`MountedFilesystem`] is a mounted one, on Linux. [`Overview`] is common to both.
//! - [`Subvolume::read`], [`write`](Subvolume::write), [`copy`](Subvolume::copy) and
//!   [`remove_all`](Subvolume::remove_all) are as in [`std::fs`]; [`File::cursor`] is a
//!   [`Read`](std::io::Read), [`Write`](std::io::Write) and [`Seek`](std::io::Seek);
//!   [`Directory::walk`] meets everything below.
//! - [`copy::CopyOptions`] copies whole trees from and to this system, and unpacks tar archives, on
//!   Linux.
//! - [`Subvolume::scan_parts`] visits every inode, with several threads.
//! - [`Filesystem::keep_state`] keeps a commit readable while the file system goes on changing.
//! - [`Filesystem::scrub`] verifies every copy on every device and repairs bad ones, as a [`Job`].
//! - [`Filesystem::balance`] moves block groups together, or to other profiles.
//! - [`accounting::Accounting::of`] says where the space went, by path, snapshot and compression.
//! - [`Error::kind`] says what an error means; its text names the path, device or item.
//!
//! Reading shows the last commit or, open for writing, the current state. After a crash, newer
//! changes may be in log trees, which only opening for writing replays: see
//! [`Filesystem::needs_log_replay`].
//!
//! Data with checksums is verified on every read. If a copy is bad, the data is read from another
//! copy or rebuilt from parity; [`Filesystem::stats`] counts this.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod check;
mod checked_commits;
#[cfg(target_os = "linux")]
pub mod copy;
mod deleted;
pub mod device;
mod find;
pub mod mkfs;
#[cfg(target_os = "linux")]
mod mounted;
pub mod objects;
mod open;
mod overview;
mod receive;
mod send;

/// The commands of streams, one by one.
pub mod commands {
    pub use larder_stream::{
        Action, Change, Changes, Checked, Command, CommandKind, LocalChanges, Original,
        StreamError, Timestamp,
    };
}

pub use deleted::DeletedFiles;
pub use find::{
    FilesystemName, block_devices, find_filesystem, find_filesystems, find_filesystems_named,
    find_further_devices, is_seed, is_still_on, uuid_of,
};
#[doc(inline)]
pub use larder_filesystem::{
    AllocateMode, Balance, BalanceEnd, BalanceProgress, BalanceState, BalanceStatus, Balanced,
    Capacity, ChosenGroup, Conversion, DelayedStats, DeviceErrors, DeviceInfo, DeviceProgress,
    DeviceScrub, Directory, Encoded, Entries, Entry, Error, ErrorAbout, ErrorKind, Extent,
    ExtentKind, ExtentMapStats, File, FileCursor, FilePlace, FileType, Filesystem, GlobalReserve,
    Health, Incomplete, Inode, Job, JobKind, JobStatus, Jobs, Link, Listed, ListedEntry,
    ListedInode, MadeReadOnly, Metadata, Moved, NewInode, OpenFile, Paths, QuotaGroup, RenameMode,
    ReplaceState, ReplaceStatus, Replacement, Result, ResyncProgress, Scan, ScannedInode,
    ScrubCounters, ScrubEnd, ScrubFate, ScrubFinding, ScrubOptions, ScrubSubject, ScrubbedFile,
    SetAttributes, SnapshotKind, Space, SpaceKind, Stats, Subvolume, SubvolumeInfo, SubvolumeName,
    Subvolumes, Timestamp, TreeItem, TreeItems, UsedExtent, Walk, WalkEntry, WriteCompression,
    WritePolicy, Xattr, XattrMode, Xattrs,
};
#[doc(hidden)]
pub use larder_filesystem::{FindExtents, Queue, Reserve, StandsIn, Tuning};
pub use larder_format::compression::{
    Algorithm as CompressionAlgorithm, Compression, CompressionSpecError,
};
pub use larder_format::item::{
    BALANCE_SINGLE, BalanceItem, DiskBalanceArgs, FilterError, InodeFlags, balance_filter,
    balance_flags,
};
pub use larder_format::{ItemType, Key, Profile, Uuid};
#[doc(inline)]
pub use larder_rescue::{DeletedFile, Progress as SearchProgress};
#[doc(inline)]
pub use larder_stream::{
    Checkpoints as ReceiveCheckpoints, CommandError, CommandProblem, Event as ReceiveEvent,
    Origin as StreamOrigin, ReceiveError, ReceiveOptions, ReceiveProblem, Received, SendError,
    SendOptions, SendProgress, Sent, Version as StreamVersion, prologue as stream_prologue,
};
#[doc(inline)]
pub use larder_volume::{Rescue, UnknownRescue};
#[cfg(target_os = "linux")]
pub use mounted::{
    ChangeEvent, MountedChanges, MountedFilesystem, MountedSnapshot, MountedWalk, WalkOptions,
    Walked, receive_mounted,
};
pub use open::OpenOptions;
pub use overview::{KeyedItems, Overview};
pub use receive::ReceiveSnapshots;
pub use send::SendSnapshot;

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So is the one of the cookbook.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cookbook/embedding.md")]
struct Embedding;
