//! A subvolume as the place of a copy.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use larder_filesystem::{
    ErrorKind, File, FileType, Inode, NewInode, SetAttributes, Subvolume, XattrMode,
};

use crate::destination::{ACCESS_ACL, Attributes, DEFAULT_ACL, Destination, NotKept};
use crate::keep::Keep;

/// A subvolume of an image. Paths start at its root.
#[derive(Debug)]
pub struct IntoImage<'a> {
    start: &'a Subvolume,
    /// How users name the subvolume: in messages it comes before a path.
    name: OsString,
    /// The inode that was made last, and its path.
    last: Option<(PathBuf, Inode)>,
    /// The file that was made last.
    file: Option<File>,
    /// It was there before.
    is_overwritten: bool,
}

impl<'a> IntoImage<'a> {
    /// The place `start`. In messages `name` comes before a path in it.
    pub fn new(start: &'a Subvolume, name: impl Into<OsString>) -> Self {
        Self { start, name: name.into(), last: None, file: None, is_overwritten: false }
    }

    /// Removes a file in the way.
    fn make_way(&self, path: &Path) -> larder_filesystem::Result<()> {
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
        [self.name.as_os_str(), path.as_os_str()].into_iter().collect::<OsString>().into()
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

    fn finish(&mut self, path: &Path, attributes: Attributes) -> anyhow::Result<NotKept> {
        match &self.last {
            Some((last, inode)) if last == path => set(inode, &attributes)?,
            _ => set(&self.start.lookup(path)?, &attributes)?,
        }
        Ok(NotKept::new())
    }
}

/// The file in an image that a copy to `path` overwrites, if there is one: what a symbolic link
/// leads to, too.
pub(crate) fn overwritten(
    start: &Subvolume,
    path: &Path,
    keep: Keep,
) -> anyhow::Result<Option<Inode>> {
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
pub(crate) fn drop_inherited_acls(
    inode: &Inode,
    has: impl Fn(&str) -> bool,
) -> larder_filesystem::Result<()> {
    [ACCESS_ACL, DEFAULT_ACL]
        .into_iter()
        .filter(|name| !has(name) && inode.xattr(name).is_ok())
        .try_for_each(|name| inode.remove_xattr(name))
}
