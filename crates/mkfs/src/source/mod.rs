//! The directory tree to copy, as it was during the walk.
//!
//! The walk is breadth first and takes the names of a directory in the order of their bytes. So the
//! children of a directory are adjacent, and inode numbers, which are assigned in this order, do
//! not depend on how the source lists directories.
//!
//! Memory: about 60 bytes and the name for each directory entry. Attributes, except the sizes of
//! files, are read again when an inode is copied.

#[cfg(target_os = "linux")]
mod access;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod scan;

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use larder_format::item::{FileType, InodeFlags};
use larder_format::objectid;
use larder_platform::OsStrExt;

#[cfg(target_os = "linux")]
pub(crate) use access::data_ranges;
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{refused, scan};
#[cfg(target_os = "linux")]
pub(crate) use scan::scan;

/// Index of a directory's first name: 0 and 1 would be `.` and `..`.
const FIRST_DIRECTORY_INDEX: u64 = 2;

/// All that is copied.
#[derive(Debug)]
pub(crate) struct Source {
    /// The top-level subvolume first, then the others in the order of their ids.
    pub(crate) subvolumes: Vec<Subvolume>,
    /// Index in `subvolumes` of the default one.
    pub(crate) default: usize,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    /// A directory of this subvolume.
    Directory,
    Symlink,
    /// A device node, a named pipe or a socket.
    Special(FileType),
    /// The root of the subvolume with this index.
    Subvolume(u32),
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceEntry {
    pub(crate) kind: Kind,
    /// Inode number; 0 for a subvolume's root.
    pub(crate) inode: u64,
    /// Bytes of a file when it was found. Copies are no longer than this.
    pub(crate) size: u64,
    /// Bytes of it that are not in holes.
    pub(crate) data_bytes: u64,
    /// The directory that holds the name; the root is its own.
    pub(crate) parent: u32,
    first_child: u32,
    children: u32,
    /// Index in `links` if the inode has several names.
    link: Option<u32>,
    /// Of files and directories: how their data is written.
    pub(crate) flags: InodeFlags,
    name_start: usize,
    name_len: u8,
}

impl SourceEntry {
    /// Indices of a directory's entries.
    pub(crate) fn children(&self) -> Range<u32> {
        self.first_child..self.first_child + self.children
    }
}

/// A subvolume to fill.
#[derive(Debug)]
pub(crate) struct Subvolume {
    /// Id of the tree.
    pub(crate) id: u64,
    /// Path of the whole source; empty if there is none.
    root: PathBuf,
    /// Path of its own source from there.
    inside: PathBuf,
    pub(crate) read_only: bool,
    /// Its name; `None` for the top level.
    pub(crate) parent: Option<ParentEntry>,
    nodes: Vec<SourceEntry>,
    names: Vec<u8>,
    /// The nodes that are one inode, for inodes with several names; each list ascends.
    links: Vec<Vec<u32>>,
}

/// The name of a subvolume.
#[derive(Clone, Debug)]
pub(crate) struct ParentEntry {
    /// Id of the tree that holds the name.
    pub(crate) tree: u64,
    /// Inode of the directory that holds it.
    pub(crate) directory: u64,
    /// Index of the name in the directory.
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

impl Source {
    /// An empty source: a top-level subvolume with an empty root directory.
    pub(crate) fn empty() -> Self {
        let root = Subvolume::new(objectid::FS_TREE, Default::default(), false, None);
        Self { subvolumes: vec![root], default: 0 }
    }
}

impl Subvolume {
    fn new(
        id: u64,
        (root, inside): (PathBuf, PathBuf),
        read_only: bool,
        parent: Option<ParentEntry>,
    ) -> Self {
        let top = SourceEntry {
            kind: Kind::Directory,
            inode: objectid::FIRST_FREE,
            size: 0,
            data_bytes: 0,
            parent: 0,
            first_child: 1,
            children: 0,
            link: None,
            flags: InodeFlags::empty(),
            name_start: 0,
            name_len: 0,
        };
        let (nodes, names, links) = (vec![top], Vec::new(), Vec::new());
        Self { id, root, inside, read_only, parent, nodes, names, links }
    }

    /// All entries; the first is the root directory. Inode numbers ascend, except for further names
    /// of an inode.
    pub(crate) fn nodes(&self) -> &[SourceEntry] {
        &self.nodes
    }

    pub(crate) fn node(&self, at: u32) -> &SourceEntry {
        &self.nodes[at as usize]
    }

    /// The name in its directory; empty for the root.
    pub(crate) fn name(&self, node: &SourceEntry) -> &[u8] {
        &self.names[node.name_start..][..usize::from(node.name_len)]
    }

    /// The index of a name in its directory.
    pub(crate) fn directory_index(&self, at: u32) -> u64 {
        let first = self.node(self.node(at).parent).first_child;
        u64::from(at - first) + FIRST_DIRECTORY_INDEX
    }

    /// The nodes that are the same inode as this one, ascending and including it.
    pub(crate) fn names_of<'a>(&'a self, at: &'a u32) -> &'a [u32] {
        match self.node(*at).link {
            Some(link) => &self.links[link as usize],
            None => std::slice::from_ref(at),
        }
    }

    /// Whether the node is the first name of its inode.
    pub(crate) fn is_first_name(&self, at: u32) -> bool {
        self.names_of(&at)[0] == at
    }

    /// The path of the entry.
    pub(crate) fn path(&self, at: u32) -> PathBuf {
        let inside = self.path_inside(at);
        // Joining an empty path would end it with a slash.
        if inside.as_os_str().is_empty() { self.root.clone() } else { self.root.join(inside) }
    }

    /// The path of the entry in the whole source; empty for the root of that.
    pub(crate) fn path_inside(&self, at: u32) -> PathBuf {
        let mut parts = Vec::new();
        let mut next = at;
        while next != 0 {
            let node = self.node(next);
            parts.push(OsStr::from_bytes(self.name(node)));
            next = node.parent;
        }
        parts.iter().rev().fold(self.inside.clone(), |path, part| path.join(part))
    }

    /// The path of the whole source; `None` if there is none.
    pub(crate) fn root_path(&self) -> Option<&Path> {
        Some(self.root.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}
