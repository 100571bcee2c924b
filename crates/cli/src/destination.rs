//! Where a copy goes: into an image, or onto a mount.
//!
//! # Invariants
//! - Nothing is made or changed through a symbolic link, except that a file in an image is
//!   overwritten through one, as cp does: no link leads out of an image.
//! - A new inode replaces a file of its name. A directory stays if there is one.
//! - A file that is overwritten keeps its inode, and with it its other names, owner, permissions,
//!   ACL and extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::File as HostFile;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder::commands::Original;
use larder::{
    ErrorKind, File, FileType, Inode, Metadata, NewInode, SetAttributes, Subvolume, Timestamp,
    Xattr, XattrMode,
};
use larder_format::OwnerMap;

use crate::extract::Keep;
use crate::source::Writing;

pub const ACCESS_ACL: &str = "system.posix_acl_access";
pub const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The records of tar archives that have these as text.
pub const ACL_RECORDS: [(&str, &str); 2] =
    [(ACCESS_ACL, "SCHILY.acl.access"), (DEFAULT_ACL, "SCHILY.acl.default")];

/// The attributes of an inode that was copied completely. What is `None` stays as it is.
#[derive(Default)]
pub struct Attributes {
    /// Not of symbolic links.
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Timestamp>,
    pub mtime: Option<Timestamp>,
    /// All extended attributes: ACLs that the copy inherited and that are not among these go.
    pub xattrs: Option<Vec<(OsString, Vec<u8>)>>,
}

impl Attributes {
    /// Those of an original.
    pub fn of(metadata: &Metadata, xattrs: Vec<Xattr>) -> Self {
        let is_symlink = metadata.file_type == FileType::Symlink;
        Self {
            permissions: (!is_symlink).then_some(metadata.mode & 0o7777),
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            atime: Some(metadata.atime),
            mtime: Some(metadata.mtime),
            xattrs: Some(xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect()),
        }
    }
}

/// A place for copies. Calls about one file follow each other: it is made, written and finished
/// before the next one.
pub trait Destination {
    /// Makes a directory unless it is one.
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Whether `path` is a directory, and no link to one.
    fn is_directory(&mut self, path: &Path) -> bool;
    /// The name of `path` as users write it.
    fn shown(&self, path: &Path) -> PathBuf;
    /// Opens the file at `path` if there is one that a copy overwrites, and empties it; `keep` says
    /// what the copy gets. It counts as made last then. Returns whether that is so; otherwise the
    /// copy is a new file.
    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool>;
    /// The file that is overwritten, if it is a file of this system.
    fn host_file(&self) -> Option<&HostFile> {
        None
    }
    /// Makes an empty file.
    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Writes to the file that was made last.
    fn write(&mut self, path: &Path, data: &[u8], offset: u64) -> anyhow::Result<()>;
    /// Sets the length of the file that was made last.
    fn set_len(&mut self, path: &Path, len_bytes: u64) -> anyhow::Result<()>;
    /// The directory in which paths start, by subvolume and number, if files can share data with
    /// those in the file system of `inode`.
    fn start_beside(&mut self, _inode: BorrowedFd<'_>) -> Option<(u64, u64)> {
        None
    }
    /// Gives the file that was made last the content of `original`, and shares it.
    fn share(&mut self, _path: &Path, _original: Original) -> anyhow::Result<()> {
        bail!("data of this file cannot be shared")
    }
    /// Removes the file that was made last, because its content cannot be copied. One that was
    /// overwritten stays: it has other names, and an owner.
    fn discard(&mut self, path: &Path) -> anyhow::Result<()>;
    /// Makes a device, a pipe or a socket.
    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()>;
    /// Makes a symbolic link.
    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()>;
    /// Gives `original` a further name.
    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()>;
    /// Sets the attributes of an inode that was made or found.
    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<()>;
}

/// A subvolume of an image.
pub struct IntoImage<'a> {
    writing: &'a Writing,
    start: &'a Subvolume,
    /// The inode that was made last, and its path.
    last: Option<(PathBuf, Inode)>,
    /// The file that was made last.
    file: Option<File>,
    /// It was there before.
    is_overwritten: bool,
}

impl<'a> IntoImage<'a> {
    /// Paths start where those of `writing` do.
    pub fn new(writing: &'a Writing) -> Self {
        Self { writing, start: &writing.start, last: None, file: None, is_overwritten: false }
    }

    /// Removes a file in the way.
    fn make_way(&self, path: &Path) -> larder::Result<()> {
        match self.start.remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self) -> anyhow::Result<&File> {
        self.file.as_ref().context("no file was made")
    }
}

impl Destination for IntoImage<'_> {
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        match self.start.create_inode(path, new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.start.lookup(path)?.into_directory()?;
            }
            made => drop(made?),
        }
        Ok(())
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        self.start.lookup(path).is_ok_and(|inode| inode.file_type() == FileType::Directory)
    }

    fn shown(&self, path: &Path) -> PathBuf {
        self.writing.shown(path)
    }

    fn overwrite_file(&mut self, path: &Path, keep: Keep) -> anyhow::Result<bool> {
        let Some(inode) = overwritten(self.start, path, keep)? else { return Ok(false) };
        self.last = Some((path.to_owned(), inode.clone()));
        let file = self.file.insert(inode.into_file()?);
        file.set_len(0)?;
        self.is_overwritten = true;
        Ok(true)
    }

    fn make_file(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.make_way(path)?;
        let inode = self.start.create_inode(path, new)?;
        self.is_overwritten = false;
        self.last = Some((path.to_owned(), inode.clone()));
        self.file = Some(inode.into_file()?);
        Ok(())
    }

    fn write(&mut self, _: &Path, data: &[u8], offset: u64) -> anyhow::Result<()> {
        Ok(self.file()?.write_at(data, offset)?)
    }

    fn set_len(&mut self, _: &Path, len_bytes: u64) -> anyhow::Result<()> {
        Ok(self.file()?.set_len(len_bytes)?)
    }

    fn discard(&mut self, path: &Path) -> anyhow::Result<()> {
        (self.last, self.file) = (None, None);
        if self.is_overwritten { Ok(()) } else { Ok(self.make_way(path)?) }
    }

    fn make_node(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.make_way(path)?;
        self.last = Some((path.to_owned(), self.start.create_inode(path, new)?));
        Ok(())
    }

    fn make_symlink(&mut self, path: &Path, target: &OsStr) -> anyhow::Result<()> {
        self.make_way(path)?;
        self.last = Some((path.to_owned(), self.start.symlink(target, path)?));
        Ok(())
    }

    fn link(&mut self, path: &Path, original: &Path) -> anyhow::Result<()> {
        self.make_way(path)?;
        Ok(self.start.hard_link(original, path)?)
    }

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<()> {
        match &self.last {
            Some((last, inode)) if last == path => set(inode, &attributes),
            _ => set(&self.start.lookup(path)?, &attributes),
        }
    }
}

/// Another place, in which owners have other ids.
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

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<()> {
        let mut attributes = attributes;
        attributes.uid = attributes.uid.map(|uid| self.map.users.inner(uid));
        attributes.gid = attributes.gid.map(|gid| self.map.groups.inner(gid));
        for (name, value) in attributes.xattrs.iter_mut().flatten() {
            self.map.map_xattr(name.as_bytes(), value);
        }
        self.place.finish(path, attributes)
    }
}

/// The file in an image that a copy to `path` overwrites, if there is one: what a symbolic link
/// leads to, too.
pub fn overwritten(start: &Subvolume, path: &Path, keep: Keep) -> anyhow::Result<Option<Inode>> {
    let found = match start.resolve(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            ensure!(start.lookup(path).is_err(), DANGLING);
            return Ok(None);
        }
        found => found?,
    };
    let is_overwritten =
        found.file_type() == FileType::Regular && keep.overwrites(found.metadata().nlink);
    Ok(is_overwritten.then_some(found))
}

/// A symbolic link in the way that leads nowhere.
pub const DANGLING: &str = "is a symbolic link to nothing, through which no copy is written";

/// Sets the attributes of an inode of an image.
fn set(inode: &Inode, attributes: &Attributes) -> anyhow::Result<()> {
    if let Some(xattrs) = &attributes.xattrs {
        drop_inherited_acls(inode, |name| xattrs.iter().any(|(known, _)| known == name))?;
        for (name, value) in xattrs {
            inode
                .set_xattr(name, value, XattrMode::Any)
                .with_context(|| format!("cannot set {}", name.display()))?;
        }
    }
    let Attributes { permissions, uid, gid, atime, mtime, .. } = *attributes;
    Ok(inode.set_attributes(&SetAttributes {
        permissions,
        uid,
        gid,
        atime,
        mtime,
        ..Default::default()
    })?)
}

/// Removes ACLs from a copy that it inherited and that the original does not have.
pub fn drop_inherited_acls(inode: &Inode, has: impl Fn(&str) -> bool) -> larder::Result<()> {
    [ACCESS_ACL, DEFAULT_ACL]
        .into_iter()
        .filter(|name| !has(name) && inode.xattr(name).is_ok())
        .try_for_each(|name| inode.remove_xattr(name))
}
