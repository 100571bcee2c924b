//! Files and subvolumes by their paths.
//!
//! Paths are those of [`Subvolume`]: they start at its root. In calls that change something,
//! symbolic links on the way are followed, one at the end is not, and new inodes belong to the user
//! and group of this process.
//!
//! In a file system that is open for reading, those calls fail with
//! [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::directory::path::resolve;
use crate::directory::rename::RenameMode;
use crate::error::Result;
use crate::handle::directory::Directory;
use crate::handle::file::File;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::metadata::Metadata;
use crate::item::new::NewInode;
use crate::subvolume::create::SnapshotKind;

/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

impl Subvolume {
    /// Its path from the top level, without a slash at either end.
    pub fn path(&self) -> Result<PathBuf> {
        self.filesystem().subvolume_path(self.id())
    }

    /// The inode at `path`. A symbolic link at the end is followed.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.find_at(path.as_ref(), true)
    }

    /// The inode at `path`. A symbolic link at the end is not followed.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.find_at(path.as_ref(), false)
    }

    /// The regular file at `path`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.resolve(path)?.into_file().map_err(|error| error.about(path))
    }

    /// The directory at `path`.
    pub fn open_directory(&self, path: impl AsRef<Path>) -> Result<Directory> {
        let path = path.as_ref();
        self.resolve(path)?.into_directory().map_err(|error| error.about(path))
    }

    /// The attributes of the inode at `path`. A symbolic link at the end is followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(path)?.metadata())
    }

    /// The target of the symbolic link at `path`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.lookup(path)?.link_target().map_err(|error| error.about(path))
    }

    /// Creates an empty file. `permissions` are those of the mode.
    pub fn create(&self, path: impl AsRef<Path>, permissions: u32) -> Result<File> {
        self.create_node(path, REGULAR | permissions & PERMISSIONS, (0, 0))?.into_file()
    }

    /// Creates an empty directory. `permissions` are those of the mode.
    pub fn create_directory(&self, path: impl AsRef<Path>, permissions: u32) -> Result<Directory> {
        self.create_node(path, DIRECTORY | permissions & PERMISSIONS, (0, 0))?.into_directory()
    }

    /// Creates an inode of any type except a symbolic link: `mode` is its type and permissions,
    /// `device` the major and minor number of a device node.
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        device: (u32, u32),
    ) -> Result<Inode> {
        self.create_inode(path, &new_inode(mode, device))
    }

    /// Creates an inode of any type except a symbolic link, with the properties `new`.
    pub fn create_inode(&self, path: impl AsRef<Path>, new: &NewInode) -> Result<Inode> {
        self.at(path.as_ref(), |directory, name| directory.create_child(name, new))
    }

    /// Creates a file without a name, which inherits from the directory at `path` like any file in
    /// it. [`link`](Self::link) gives it a name; without one it is deleted with its last handle,
    /// and by a crash.
    pub fn create_unnamed(&self, path: impl AsRef<Path>, permissions: u32) -> Result<File> {
        let directory = self.open_directory(path)?;
        directory.create_unnamed(&new_inode(REGULAR | permissions & PERMISSIONS, (0, 0)))
    }

    /// Creates a symbolic link at `path` to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Inode> {
        self.at(path.as_ref(), |directory, name| {
            directory.symlink_child(name, target.as_ref(), &new_inode(0, (0, 0)))
        })
    }

    /// Gives the inode at `original`, which is no directory, the further name `path`.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let original = self.lookup(original)?;
        self.at(path.as_ref(), |directory, name| directory.link_child(name, &original))
    }

    /// Gives `inode`, which is no directory, the further name `path`, or its first if it was
    /// created without.
    pub fn link(&self, inode: &Inode, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |directory, name| directory.link_child(name, inode))
    }

    /// Removes the name `path`, which is not that of a directory. The inode is deleted with its
    /// last name, or once its last handle is dropped.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), Directory::remove_child)
    }

    /// Removes an empty directory, which may be a subvolume.
    pub fn remove_directory(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), Directory::remove_child_directory)
    }

    /// Renames `from` to `to`. An inode that is at `to` is replaced if it is of the same kind and,
    /// for a directory, empty. Subvolumes move to any subvolume, other inodes within their own.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Like [`rename`](Self::rename); `mode` says what happens to an inode at `to`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let found = |path| self.parent_and_name(path).map_err(|error| error.about(path));
        let ((parent, name), (new_parent, new_name)) = (found(from)?, found(to)?);
        let rename = || {
            let (directory, to) = (parent.into_directory()?, new_parent.into_directory()?);
            directory.rename_child(name, &to, new_name, mode)
        };
        rename().map_err(|error| {
            error.about(Path::new(&format!("{} to {}", from.display(), to.display())))
        })
    }

    /// Creates an empty subvolume at `path`. It is durable when this returns.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<Self> {
        self.at(path.as_ref(), |directory, name| {
            directory.create_child_subvolume(name, &new_inode(0o755, (0, 0)))
        })
    }

    /// Takes a snapshot of this subvolume, whatever its size, named `path` in this subvolume or one
    /// nested in it. It includes all earlier changes, and is durable when this returns.
    pub fn snapshot(&self, path: impl AsRef<Path>, kind: SnapshotKind) -> Result<Self> {
        self.snapshot_to(self, path, kind)
    }

    /// Like [`snapshot`](Self::snapshot), named `path` in `other`.
    pub fn snapshot_to(
        &self,
        other: &Self,
        path: impl AsRef<Path>,
        kind: SnapshotKind,
    ) -> Result<Self> {
        other.at(path.as_ref(), |directory, name| directory.snapshot_child(name, self, kind))
    }

    /// Deletes the subvolume at `path` and all its content. Inodes with a handle work as before,
    /// but have no path any more. The space is freed with the last handle.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), Directory::delete_child_subvolume)
    }

    fn find_at(&self, path: &Path, follow_last: bool) -> Result<Inode> {
        let found = self.root().and_then(|root| resolve(&root, &root, path, follow_last));
        found.map_err(|error| error.about(path))
    }

    /// Does something with the name at the end of `path` in its directory.
    pub(super) fn at<T>(
        &self,
        path: &Path,
        act: impl FnOnce(&Directory, &OsStr) -> Result<T>,
    ) -> Result<T> {
        let found = self.parent_and_name(path);
        let done = found.and_then(|(parent, name)| act(&parent.into_directory()?, name));
        done.map_err(|error| error.about(path))
    }

    fn parent_and_name<'p>(&self, path: &'p Path) -> Result<(Inode, &'p OsStr)> {
        let (parent, name) = larder_platform::split(path);
        let root = self.root()?;
        Ok((resolve(&root, &root, parent, true)?, name.unwrap_or(OsStr::new("."))))
    }
}

fn new_inode(mode: u32, device: (u32, u32)) -> NewInode {
    let (uid, gid) = larder_platform::user();
    NewInode { mode, uid, gid, umask: 0, device }
}
