//! A description of everything in a tree that a program can see, for comparing.
//!
//! [`Manifest::of_tree`] reads a mount; any other reader fills a manifest entry by entry. Two
//! manifests of one image must be equal, whatever made them.

mod content_hash;
mod copied;
mod diff;
mod walk;

use std::collections::BTreeMap;
use std::ops::Range;

pub use content_hash::ContentHash;
pub use copied::assert_copied;
pub use diff::{Difference, assert_same};

/// A tree: the entry at each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By path from the root of the tree, in bytes, without a slash at either end: the root is
    /// empty.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// One file, folder or other inode under one of its names.
///
/// In place of a nested subvolume in a snapshot, the kernel shows an empty folder with inode number
/// 2 that is on no disk. It gets the times 0 here, since the kernel makes them up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Permissions with setuid, setgid and sticky: the mode without its type.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// `st_size`: the bytes of a file or of a symbolic link's target; btrfs's own value for a
    /// folder.
    pub size_bytes: u64,
    /// `st_blocks` in bytes: the allocated space, in whole sectors, before compression.
    pub allocated_bytes: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, the btime of statx.
    pub otime: Timestamp,
    /// Inode number, unique within the subvolume.
    pub inode: u64,
    /// Subvolume id, or 0 if the file system has none.
    pub subvolume: u64,
    /// Inode flags from `FS_IOC_GETFLAGS`; only for files and folders.
    pub flags: Option<u32>,
    /// Extended attributes with their full names, including ACLs and properties.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its type and content.
    pub body: Body,
}

/// The type of an inode, and the fields of this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A regular file.
    File {
        /// See [`ContentHash`].
        hash: u64,
        /// The data ranges of `SEEK_DATA` and `SEEK_HOLE`: sorted, neither touching nor
        /// overlapping, cut at the file's size. Preallocated space is a hole.
        data: Vec<Range<u64>>,
    },
    /// A folder.
    Folder {
        /// Its names in the order of `readdir`, which is that of their indexes.
        names: Vec<Vec<u8>>,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A character device.
    CharacterDevice {
        /// Major and minor number.
        number: (u32, u32),
    },
    /// A block device.
    BlockDevice {
        /// Major and minor number.
        number: (u32, u32),
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A point in time: seconds since 1970, negative before, and nanoseconds forward from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the beginning of 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Manifest {
    /// An empty manifest.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `entry` at `path`. Panics if there is one already.
    #[track_caller]
    pub fn insert(&mut self, path: impl Into<Vec<u8>>, entry: Entry) {
        let path = path.into();
        let shown = path.escape_ascii().to_string();
        assert!(self.entries.insert(path, entry).is_none(), "{shown:?} is in the manifest twice");
    }
}
