//! Directories.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;

use larder_filesystem::{DirEntry, FileType, Metadata, Target};

use crate::path;
use crate::{Error, Inode, Result};

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

/// An entry of a directory with what it leads to.
#[derive(Debug)]
pub struct ListedEntry {
    /// The entry.
    pub entry: Entry,
    /// What it leads to; an error if that cannot be read.
    pub found: Result<ListedInode>,
}

/// What a listed entry leads to.
#[derive(Debug)]
pub enum ListedInode {
    /// A directory, or what is in memory anyway.
    Open(Inode),
    /// Anything else: its attributes. Nothing of it is kept in memory.
    Attributes(Metadata),
}

/// Some entries of a directory, and where it goes on.
#[derive(Debug)]
pub struct Listed {
    /// The entries in the order of their indexes; errors in the place of those that cannot be read.
    pub entries: Vec<Result<ListedEntry>>,
    /// The index from which there may be more.
    pub next: Option<u64>,
}

/// Iterates over the entries of a directory in the order in which they were made, neither `.` nor
/// `..` among them. After an error it goes on behind what cannot be read.
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

    /// The entries whose [`Entry::index`] is `index` or greater: a listing goes on where it stopped
    /// with one more than the index of the last entry.
    pub fn entries_from(&self, index: u64) -> Result<Entries> {
        let inner = self.inner().entries_from(index)?;
        Ok(Entries { directory: self.inode.clone(), inner })
    }

    /// Up to `most` of the entries whose [`Entry::index`] is `index` or greater, with the
    /// attributes that what they lead to has: far less work than [`Entry::open`] for each. The
    /// entries are those of one moment.
    pub fn list_with_inodes(&self, index: u64, most: usize) -> Result<Listed> {
        let larder_filesystem::Listed { entries, next } =
            self.inner().list_with_inodes(index, most)?;
        let entries = entries.into_iter().map(|listed| {
            let larder_filesystem::ListedEntry { entry, found } = listed?;
            let found = found.map(|found| match found {
                larder_filesystem::ListedInode::Open(inode) => ListedInode::Open(Inode::new(inode)),
                larder_filesystem::ListedInode::Attributes(metadata) => {
                    ListedInode::Attributes(metadata)
                }
            });
            let entry = Entry { directory: self.inode.clone(), inner: entry };
            Ok(ListedEntry { entry, found: found.map_err(Error::from) })
        });
        Ok(Listed { entries: entries.collect(), next })
    }

    /// The index that the next name will have: entries with a lower one were there before this call.
    pub fn end_index(&self) -> Result<u64> {
        Ok(self.inner().end_index()?)
    }

    /// What `path` leads to from here, a symbolic link at its end not followed. Absolute paths start
    /// at the root of the subvolume, and `..` does not lead out of it.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), false)
    }

    /// As [`lookup`](Self::lookup), but a symbolic link at the end is followed.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.walk(path.as_ref(), true)
    }

    /// The directory that holds this one: of the root of a subvolume the directory where it is named,
    /// of the root of the top level itself.
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
        walk().map(Inode::new).map_err(|error| Error::from(error).about(path))
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

    /// Where it stands in the directory.
    pub fn index(&self) -> u64 {
        self.inner.index
    }

    /// The type of what it leads to.
    pub fn file_type(&self) -> FileType {
        self.inner.file_type
    }

    /// The number of the inode that it leads to: for a subvolume that of its root.
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

    /// The id of the subvolume that it leads to, if it does.
    pub fn subvolume_id(&self) -> Option<u64> {
        match self.inner.target {
            Target::Inode(_) => None,
            Target::Subvolume(id) => Some(id),
        }
    }

    /// What it leads to.
    pub fn open(&self) -> Result<Inode> {
        let inode = self
            .directory
            .inner()
            .as_directory()
            .and_then(|directory| directory.open_entry(&self.inner))
            .map_err(Error::from);
        inode.map(Inode::new).map_err(|error| error.about(Path::new(self.name())))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = |inner| Entry { directory: self.directory.clone(), inner };
        Some(self.inner.next()?.map(entry).map_err(Error::from))
    }
}
