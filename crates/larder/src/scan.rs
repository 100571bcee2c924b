//! Every inode of a subvolume, quickly.

use std::path::PathBuf;

use larder_filesystem::Metadata;

use crate::{Link, Result, Subvolume, path};

/// An inode that a [`Scan`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedInode {
    /// Its attributes.
    pub metadata: Metadata,
    /// Its names; none if it was unlinked while a program had it open and is not yet deleted.
    pub links: Vec<Link>,
}

/// Iterates over the inodes of a subvolume in the order of their numbers. After an error it goes on
/// with the next inode that can be read.
#[derive(Debug)]
pub struct Scan {
    inner: larder_filesystem::Scan,
}

/// The paths of the inodes of a scan. Each thread has its own.
#[derive(Debug)]
pub struct Paths {
    inner: larder_filesystem::DirectoryPaths,
}

impl Subvolume {
    /// All inodes of this subvolume, without nested subvolumes, with their attributes and names.
    ///
    /// This reads every leaf of the tree once and in order. To visit everything, it is much quicker
    /// than going from directory to directory.
    pub fn scan(&self) -> Scan {
        Scan { inner: self.inner().scan() }
    }

    /// Like [`scan`](Self::scan), but in at most `count` parts of about equal size, for as many
    /// threads.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), larder::Error> {
    /// # let subvolume = larder::OpenOptions::new().open(["disk.img"])?.subvolume("/")?;
    /// let sum = |part: larder::Scan| -> Result<u64, larder::Error> {
    ///     part.map(|inode| Ok(inode?.metadata.size_bytes)).sum()
    /// };
    /// let parts = subvolume.scan_parts(4)?;
    /// let total: u64 = std::thread::scope(|scope| {
    ///     let threads: Vec<_> =
    ///         parts.into_iter().map(|part| scope.spawn(move || sum(part))).collect();
    ///     threads.into_iter().map(|thread| thread.join().expect("it only adds")).sum::<Result<_, _>>()
    /// })?;
    /// # let _ = total;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_parts(&self, count: usize) -> Result<Vec<Scan>> {
        let parts = self.inner().scan_parts(count)?;
        Ok(parts.into_iter().map(|inner| Scan { inner }).collect())
    }

    /// The paths of the inodes of a scan of this subvolume.
    pub fn paths(&self) -> Paths {
        Paths { inner: larder_filesystem::DirectoryPaths::new(self.inner().clone()) }
    }
}

impl Paths {
    /// The path of a name from the root of the subvolume, without a slash at either end.
    pub fn of(&mut self, link: &Link) -> Result<PathBuf> {
        let directory = self.inner.directory(link.parent)?;
        let mut path = PathBuf::with_capacity(directory.len() + 1 + link.name.len());
        path.push(path::name(directory));
        path.push(&link.name);
        Ok(path)
    }
}

impl Iterator for Scan {
    type Item = Result<ScannedInode>;

    fn next(&mut self) -> Option<Self::Item> {
        let inode = |inode: larder_filesystem::ScannedInode| ScannedInode {
            metadata: inode.metadata,
            links: inode.links.into_iter().map(Link::from).collect(),
        };
        Some(self.inner.next()?.map(inode))
    }
}
