//! Working in one directory by the names in it, on behalf of others: what is made belongs to whom the
//! caller says. A server of file requests needs this; by path it is all done with [`Subvolume`].
//!
//! Each of these takes one name, neither a path nor `.` nor `..`, as bytes. Their errors name no path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_filesystem::{NewInode, RenameMode};

use crate::{Directory, Inode, Result, SnapshotKind, Subvolume, path};

impl Directory {
    /// What is named `name` here; a symbolic link is not followed.
    pub fn child(&self, name: &OsStr) -> Result<Inode> {
        Ok(Inode::new(self.inner().lookup(name.as_bytes())?))
    }

    /// Makes an inode of any type but a symbolic link.
    pub fn create_child(&self, name: &OsStr, new: &NewInode) -> Result<Inode> {
        Ok(Inode::new(self.inner().create(name.as_bytes(), new)?))
    }

    /// Makes a symbolic link that points to `target`; mode and device of `new` are not looked at.
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

    /// Moves `name` to `new_name` in `to`; `mode` says what becomes of what is there.
    pub fn rename_child(
        &self,
        name: &OsStr,
        to: &Self,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        Ok(self.inner().rename(name.as_bytes(), to.inner(), new_name.as_bytes(), mode)?)
    }

    /// Makes an empty subvolume whose root has the owner and permissions of `root`. It is durable when
    /// this returns.
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

    /// Deletes the subvolume named `name` and all that is in it; see [`Subvolume::delete_subvolume`].
    pub fn delete_child_subvolume(&self, name: &OsStr) -> Result<()> {
        Ok(self.inner().delete_subvolume(name.as_bytes())?)
    }
}
