//! In how many pieces files are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use larder_filesystem::Filesystem;
use larder_format::item::RegularExtent;
use larder_platform::OsStrExt;

use crate::roots::Roots;
use crate::stored_as::StoredAs;

/// Most files that are named.
const MOST_NAMED: usize = 50;

/// How fragmented the files of the opened subvolumes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fragmentation {
    /// Files that have extents.
    pub files: u64,
    /// Their extents: parts of one extent with something between them count each.
    pub extents: u64,
    /// Their fragments: parts of files that are in one piece, in logical addresses.
    pub fragments: u64,
    /// The files by fragments: from 1, from 2, from 4, and so on.
    pub histogram: Vec<FragmentedFiles>,
    /// The files with most fragments, the greatest number first; none in one piece.
    pub most: Vec<FragmentedFile>,
}

/// Files that have so many fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentedFiles {
    /// The least number; the greatest is one less than twice this.
    pub from_fragments: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes of these files that extents hold.
    pub file_bytes: u64,
}

/// A file in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentedFile {
    /// Its path from the top level, without a slash at its start; `None` if no name leads to it.
    pub path: Option<Vec<u8>>,
    /// Its subvolume.
    pub subvolume: u64,
    /// Its inode number.
    pub inode: u64,
    /// Bytes of it that extents hold.
    pub file_bytes: u64,
    /// Number of its extents.
    pub extents: u64,
    /// Number of its fragments.
    pub fragments: u64,
}

/// The pieces of one file, given in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileFragments {
    fragments: u64,
    pub(crate) extents: u64,
    file_bytes: u64,
    /// Where the next piece must begin to belong to the last one: in the file, and at which
    /// address.
    next: (u64, u64),
}

/// The pieces of all files.
#[derive(Default)]
pub(crate) struct Fragments {
    shown: Fragmentation,
    most: BinaryHeap<Reverse<(FileFragments, u32, u64)>>,
}

impl FileFragments {
    pub(crate) fn add(&mut self, offset: u64, extent: &RegularExtent, stored_as: StoredAs) {
        let (start, len_bytes) = match stored_as {
            StoredAs::Compressed(_) => (extent.disk_bytenr.get(), extent.disk_num_bytes.get()),
            _ => {
                let start = extent.disk_bytenr.get().saturating_add(extent.offset.get());
                (start, extent.num_bytes.get())
            }
        };
        let file_bytes = extent.num_bytes.get();
        self.extents += 1;
        self.file_bytes = self.file_bytes.saturating_add(file_bytes);
        if self.fragments == 0 || self.next != (offset, start) {
            self.fragments += 1;
        }
        self.next = (offset.saturating_add(file_bytes), start.saturating_add(len_bytes));
    }
}

impl Fragments {
    pub(crate) fn add(&mut self, root: u32, inode: u64, file: FileFragments) {
        self.shown.files += 1;
        self.shown.extents += file.extents;
        self.shown.fragments += file.fragments;
        let power = file.fragments.max(1).ilog2();
        let histogram = &mut self.shown.histogram;
        while histogram.len() <= power as usize {
            let from_fragments = 1 << histogram.len();
            histogram.push(FragmentedFiles { from_fragments, files: 0, file_bytes: 0 });
        }
        let alike = &mut histogram[power as usize];
        alike.files += 1;
        alike.file_bytes = alike.file_bytes.saturating_add(file.file_bytes);
        if file.fragments > 1 {
            self.most.push(Reverse((file, root, inode)));
            if self.most.len() > MOST_NAMED {
                self.most.pop();
            }
        }
    }

    pub(crate) fn shown(self, filesystem: &Filesystem, roots: &Roots) -> Fragmentation {
        let most = self.most.into_sorted_vec().into_iter().map(|Reverse((file, root, inode))| {
            let subvolume = roots.id(root);
            let FileFragments { fragments, extents, file_bytes, .. } = file;
            let path = path_of(filesystem, subvolume, inode);
            FragmentedFile { path, subvolume, inode, file_bytes, extents, fragments }
        });
        Fragmentation { most: most.collect(), ..self.shown }
    }
}

fn path_of(filesystem: &Filesystem, subvolume: u64, inode: u64) -> Option<Vec<u8>> {
    let above = filesystem.subvolume_path(subvolume).ok()?;
    let paths = filesystem.subvolume_by_id(subvolume).ok()?.inode(inode).ok()?.paths().ok()?;
    let below: &Path = paths.first()?;
    let below = below.strip_prefix("/").unwrap_or(below);
    Some(larder_platform::join(&above, below).as_os_str().as_bytes().to_vec())
}
