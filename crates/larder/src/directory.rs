//! Directories.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;

use larder_filesystem::{DirEntry, FileType, Metadata, Target};

use crate::path;
use crate::{Inode, Result};

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    inode: Inode,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    directory: Inode,
    inner: DirEntry,
}

/// An entry of a directory with its inode.
#[derive(Debug)]
pub struct ListedEntry {
    /// The entry.
    pub entry: Entry,
    /// The inode; an error if it cannot be read.
    pub found: Result<ListedInode>,
}

/// The inode of a listed entry.
#[derive(Debug)]
pub enum ListedInode {
    /// A directory, or an inode that is in memory already.
    Open(Inode),
    /// Any other inode: its attributes. It does not enter memory.
    Attributes(Metadata),
}

/// Some entries of a directory, and the index of the rest.
#[derive(Debug)]
pub struct Listed {
    /// The entries in the order of their indexes. An error stands for each that cannot be read.
    pub entries: Vec<Result<ListedEntry>>,
    /// The index from which there may be more.
    pub next: Option<u64>,
}

/// Iterates over the entries of a directory in the order of their creation, without `.` and `..`.
/// After an error it goes on with the next entry that can be read.
#[derive(Debug)]
pub struct Entries {
    directory: Inode,
    inner: larder_filesystem::Entries,
}

impl Directory {
    pub(crate) fn new(inode: Inode) -> Self {
        Self { inode }
    }

    pub(crate) fn inner(&self) -> larder_filesystem::Directory<'_> {
        self.inode.inner().as_directory().expect("it was made of a directory")
    }

    /// All entries.
    pub fn entries(&self) -> Result<Entries> {
        self.entries_from(0)
    }

    /// The entries whose [`Entry::index`] is `index` or greater. To continue a listing, pass the
    /// index of the last entry plus one.
    pub fn entries_from(&self, index: u64) -> Result<Entries> {
        let inner = self.inner().entries_from(index)?;
        Ok(Entries { directory: self.inode.clone(), inner })
    }

    /// Up to `most` of the entries whose [`Entry::index`] is `index` or greater, with the
    /// attributes of their inodes: far less work than [`Entry::open`] for each. The entries are
    /// those of one moment.
    pub fn list_with_inodes(&self, index: u64, most: usize) -> Result<Listed> {
        let larder_filesystem::Listed { entries, next } =
            larder_filesystem::Listed::read(self.inner(), index, most)?;
        let entries = entries.into_iter().map(|listed| {
            let larder_filesystem::ListedEntry { entry, found } = listed?;
            let found = found.map(|found| match found {
                larder_filesystem::ListedInode::Open(inode) => ListedInode::Open(Inode::new(inode)),
                larder_filesystem::ListedInode::Attributes(metadata) => {
                    ListedInode::Attributes(metadata)
                }
            });
            let entry = Entry { directory: self.inode.clone(), inner: entry };
            Ok(ListedEntry { entry, found: found })
        });
        Ok(Listed { entries: entries.collect(), next })
    }

    /// The index that the next name will have: entries with a lower one existed before this call.
    pub fn end_index(&self) -> Result<u64> {
        Ok(self.inner().end_index()?)
    }

    /// The inode at `path`, from here. A symbolic link at the end is not followed. Absolute paths
    /// start at the root of the subvolume, and `..` does not lead out of it.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), false)
    }

    /// Like [`lookup`](Self::lookup), but follows a symbolic link at the end.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), true)
    }

    /// The directory that holds this one. For the root of a subvolume it is the directory with the
    /// subvolume's name, for the root of the top level the root itself.
    pub fn parent(&self) -> Result<Self> {
        Inode::new(self.inode.inner().parent()?).into_directory()
    }

    /// The inode as such.
    pub fn into_inode(self) -> Inode {
        self.inode
    }

    fn walk(&self, path: &Path, follow_last: bool) -> Result<Inode> {
        let walk = || {
            let root = self.inode.inner().subvolume().root()?;
            self.inode.inner().resolve(&root, path::bytes(path), follow_last)
        };
        walk().map(Inode::new).map_err(|error| error.about(path))
    }
}

impl Deref for Directory {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Entry {
    /// The name.
    pub fn name(&self) -> &OsStr {
        path::name(&self.inner.name)
    }

    /// Its position in the directory.
    pub fn index(&self) -> u64 {
        self.inner.index
    }

    /// The type of its inode.
    pub fn file_type(&self) -> FileType {
        self.inner.file_type
    }

    /// The number of its inode. For a subvolume that is the root's.
    pub fn inode_number(&self) -> u64 {
        match self.inner.target {
            Target::Inode(number) => number,
            Target::Subvolume(_) => larder_format::objectid::FIRST_FREE,
        }
    }

    /// The id of the subvolume that the directory belongs to.
    pub fn directory_subvolume_id(&self) -> u64 {
        self.directory.subvolume_id()
    }

    /// The id of the subvolume that it leads to, if it leads to one.
    pub fn subvolume_id(&self) -> Option<u64> {
        match self.inner.target {
            Target::Inode(_) => None,
            Target::Subvolume(id) => Some(id),
        }
    }

    /// Opens its inode.
    pub fn open(&self) -> Result<Inode> {
        let inode = self
            .directory
            .inner()
            .as_directory()
            .and_then(|directory| directory.open_entry(&self.inner));
        inode.map(Inode::new).map_err(|error| error.about(Path::new(self.name())))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = |inner| Entry { directory: self.directory.clone(), inner };
        Some(self.inner.next()?.map(entry))
    }
}
