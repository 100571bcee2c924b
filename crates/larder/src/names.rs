//! Calls that work in one directory by the names in it, for other users: the caller says to whom a
//! new inode belongs. A file server needs this; [`Subvolume`] does the same by path.
//!
//! Each call takes one name, neither a path nor `.` nor `..`, as bytes. Errors name no path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_filesystem::{NewInode, RenameMode};

use crate::{Directory, Inode, Result, SnapshotKind, Subvolume, path};

impl Directory {
    /// The inode named `name` here; a symbolic link is not followed.
    pub fn child(&self, name: &OsStr) -> Result<Inode> {
        Ok(Inode::new(self.inner().lookup(name.as_bytes())?))
    }

    /// Creates an inode of any type except a symbolic link.
    pub fn create_child(&self, name: &OsStr, new: &NewInode) -> Result<Inode> {
        Ok(Inode::new(self.inner().create(name.as_bytes(), new)?))
    }

    /// Creates a symbolic link to `target`; mode and device of `new` are ignored.
    pub fn symlink_child(&self, name: &OsStr, target: &Path, new: &NewInode) -> Result<Inode> {
        Ok(Inode::new(self.inner().symlink(name.as_bytes(), path::bytes(target), new)?))
    }

    /// Gives `inode`, which is no directory, a further name here.
    pub fn link_child(&self, name: &OsStr, inode: &Inode) -> Result<()> {
        Ok(self.inner().link(name.as_bytes(), inode.inner())?)
    }

    /// Removes a name that is not that of a directory.
    pub fn remove_child(&self, name: &OsStr) -> Result<()> {
        Ok(self.inner().unlink(name.as_bytes())?)
    }

    /// Removes an empty directory, which may be a subvolume.
    pub fn remove_child_directory(&self, name: &OsStr) -> Result<()> {
        Ok(self.inner().rmdir(name.as_bytes())?)
    }

    /// Renames `name` to `new_name` in `to`; `mode` says what happens to an inode that has the new
    /// name.
    pub fn rename_child(
        &self,
        name: &OsStr,
        to: &Self,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        Ok(self.inner().rename(name.as_bytes(), to.inner(), new_name.as_bytes(), mode)?)
    }

    /// Creates an empty subvolume whose root has the owner and permissions of `root`. It is durable
    /// when this returns.
    pub fn create_child_subvolume(&self, name: &OsStr, root: &NewInode) -> Result<Subvolume> {
        Ok(Subvolume::new(self.inner().create_subvolume(name.as_bytes(), root)?))
    }

    /// Takes a snapshot of `subvolume` that is named `name` here. It is durable when this returns.
    pub fn snapshot_child(
        &self,
        name: &OsStr,
        subvolume: &Subvolume,
        kind: SnapshotKind,
    ) -> Result<Subvolume> {
        let is_read_only = kind == SnapshotKind::ReadOnly;
        let made = subvolume.inner().snapshot(self.inner(), name.as_bytes(), is_read_only)?;
        Ok(Subvolume::new(made))
    }

    /// Deletes the subvolume named `name` with all its content; see
    /// [`Subvolume::delete_subvolume`].
    pub fn delete_child_subvolume(&self, name: &OsStr) -> Result<()> {
        Ok(self.inner().delete_subvolume(name.as_bytes())?)
    }
}
