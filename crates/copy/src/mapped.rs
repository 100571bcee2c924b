//! A place in which owners have other ids.

use std::ffi::OsStr;
use std::fs::File as HostFile;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_filesystem::NewInode;
use larder_format::OwnerMap;
use larder_stream::Original;

use crate::destination::{Attributes, Destination, NotKept};
use crate::keep::Keep;

/// A place in which owners have other ids.
pub struct Mapped<'a> {
    place: &'a mut dyn Destination,
    map: &'a OwnerMap,
}

impl<'a> Mapped<'a> {
    /// `map` leads to the ids in `place`.
    pub fn new(place: &'a mut dyn Destination, map: &'a OwnerMap) -> Self {
        Self { place, map }
    }
}

impl Destination for Mapped<'_> {
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.place.make_directory(path, new)
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        self.place.is_directory(path)
    }

    fn shown(&self, path: &Path) -> PathBuf {
        self.place.shown(path)
    }

    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool> {
        self.place.overwrite_file(path, keep)
    }

    fn host_file(&self) -> Option<&HostFile> {
        self.place.host_file()
    }

    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.place.make_file(path, new)
    }

    fn write(&mut self, path: &Path, data: &[u8], offset: u64) -> anyhow::Result<()> {
        self.place.write(path, data, offset)
    }

    fn set_len(&mut self, path: &Path, len_bytes: u64) -> anyhow::Result<()> {
        self.place.set_len(path, len_bytes)
    }

    fn start_beside(&mut self, inode: BorrowedFd<'_>) -> Option<(u64, u64)> {
        self.place.start_beside(inode)
    }

    fn share(&mut self, path: &Path, original: Original) -> anyhow::Result<()> {
        self.place.share(path, original)
    }

    fn discard(&mut self, path: &Path) -> anyhow::Result<()> {
        self.place.discard(path)
    }

    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.place.make_node(path, new)
    }

    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()> {
        self.place.make_symlink(path, target)
    }

    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()> {
        self.place.link(path, original)
    }

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept> {
        let mut attributes = attributes;
        attributes.uid = attributes.uid.map(|uid| self.map.users.inner(uid));
        attributes.gid = attributes.gid.map(|gid| self.map.groups.inner(gid));
        for (name, value) in attributes.xattrs.iter_mut().flatten() {
            self.map.map_xattr(name.as_bytes(), value);
        }
        self.place.finish(path, attributes)
    }
}
