//! Changing a file system that was opened for writing.
//!
//! Paths are those of [`Subvolume`]: they start at its root. Symbolic links on the way are followed, one
//! at the end is not. What is made belongs to the user and group of this process.
//!
//! In a file system that is open for reading everything here fails with
//! [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use larder_filesystem::{
    AllocateMode, Encoded, NewInode, RenameMode, SetAttributes, WriteCompression, XattrMode,
};

use crate::path;
use crate::xattr::name_bytes;
use crate::{Directory, Error, File, Filesystem, Inode, Result, Subvolume, Timestamp, Uuid};

/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// Whether a snapshot can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// It stays as it is.
    ReadOnly,
    /// It goes its own way.
    Writable,
}

impl Filesystem {
    /// Makes everything that was done before this call durable, by a commit.
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner().sync()?)
    }

    /// Gives back the room of files that have no name, and of subvolumes that were deleted, whose last handle is
    /// gone. Removing a name does so too.
    pub fn delete_unlinked(&self) {
        self.inner().delete_unlinked();
    }

    /// Changes how often commits are made in the background, if they are at all; see
    /// [`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval).
    pub fn set_commit_interval(&self, interval: Duration) {
        self.inner().set_commit_interval(interval);
    }

    /// Changes the label: one line of at most 255 bytes. It is durable when this returns.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        Ok(self.inner().set_label(label.as_ref().as_bytes())?)
    }

    /// Changes how data is compressed from now on; see
    /// [`OpenOptions::compression`](crate::OpenOptions::compression).
    pub fn set_compression(&self, compression: Option<WriteCompression>) -> Result<()> {
        Ok(self.inner().set_compression(compression)?)
    }

    /// Deletes the subvolume with this id and all that is in it, wherever it is named. Handles of what
    /// was in it are of no use afterwards.
    pub fn delete_subvolume_by_id(&self, id: u64) -> Result<()> {
        let name = self.subvolume_by_id(id)?.info()?.name;
        let name = name.ok_or(larder_filesystem::Error::NotPermitted("the top level stays"))?;
        let directory = self.subvolume_by_id(name.parent)?.inode(name.directory)?;
        directory.into_directory()?.delete_child_subvolume(OsStr::from_bytes(&name.name))
    }

    /// Makes the subvolume with this id the one that a mount shows unless it is told otherwise. It is
    /// durable when this returns.
    pub fn set_default_subvolume(&self, id: u64) -> Result<()> {
        Ok(self.inner().set_default_subvolume(id)?)
    }
}

impl Subvolume {
    /// Makes an empty file. `permissions` are those of the mode.
    pub fn create(&self, path: impl AsRef<Path>, permissions: u32) -> Result<File> {
        self.create_node(path, REGULAR | permissions & PERMISSIONS, (0, 0))?.into_file()
    }

    /// Makes an empty directory. `permissions` are those of the mode.
    pub fn create_directory(&self, path: impl AsRef<Path>, permissions: u32) -> Result<Directory> {
        self.create_node(path, DIRECTORY | permissions & PERMISSIONS, (0, 0))?.into_directory()
    }

    /// Makes an inode of any type but a symbolic link: `mode` is its type and permissions, `device` the
    /// major and minor number of a device node.
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        device: (u32, u32),
    ) -> Result<Inode> {
        self.create_inode(path, &new_inode(mode, device))
    }

    /// Makes an inode of any type but a symbolic link, as `new` says.
    pub fn create_inode(&self, path: impl AsRef<Path>, new: &NewInode) -> Result<Inode> {
        self.at(path.as_ref(), |directory, name| directory.create(name, new).map(Inode::new))
    }

    /// Makes a file without a name, that takes over what a file made in the directory at `path` does.
    /// [`link`](Self::link) gives it a name; without one it is deleted with its last handle, and by a
    /// crash.
    pub fn create_unnamed(&self, path: impl AsRef<Path>, permissions: u32) -> Result<File> {
        let directory = self.open_directory(path)?;
        directory.create_unnamed(&new_inode(REGULAR | permissions & PERMISSIONS, (0, 0)))
    }

    /// Makes a symbolic link at `path` that points to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Inode> {
        self.at(path.as_ref(), |directory, name| {
            let target = path::bytes(target.as_ref());
            directory.symlink(name, target, &new_inode(0, (0, 0))).map(Inode::new)
        })
    }

    /// Gives what is at `original`, which is no directory, the further name `path`.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let original = self.lookup(original)?;
        self.at(path.as_ref(), |directory, name| directory.link(name, original.inner()))
    }

    /// Gives `inode`, which is no directory, the further name `path`; the first if it was made without.
    pub fn link(&self, inode: &Inode, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |directory, name| directory.link(name, inode.inner()))
    }

    /// Removes the name `path`, which is not that of a directory. What it named is deleted with its last
    /// name, or once the last handle of it is dropped.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |directory, name| directory.unlink(name))
    }

    /// Removes an empty directory, which may be a subvolume.
    pub fn remove_directory(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |directory, name| directory.rmdir(name))
    }

    /// Moves what is at `from` to `to`, in place of what is there if it is of the same kind, and for a
    /// directory empty. Subvolumes move to any subvolume, all else within its own.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`rename`](Self::rename); `mode` says what becomes of what is at `to`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let found =
            |path| self.parent_and_name(path).map_err(|error| Error::from(error).about(path));
        let ((directory, name), (new_directory, new_name)) = (found(from)?, found(to)?);
        let rename = || {
            let (directory, to) = (directory.as_directory()?, new_directory.as_directory()?);
            directory.rename(name, to, new_name, mode)
        };
        let renamed = rename();
        renamed.map_err(|error| {
            let both = format!("{} to {}", from.display(), to.display());
            Error::from(error).about(Path::new(&both))
        })
    }

    /// Makes an empty subvolume at `path`. It is durable when this returns.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<Self> {
        self.at(path.as_ref(), |directory, name| {
            directory.create_subvolume(name, &new_inode(0o755, (0, 0))).map(Self::new)
        })
    }

    /// Takes a snapshot of this subvolume, whatever its size, named `path` in this subvolume or one
    /// nested in it. It has all that was done before this call, and is durable when this returns.
    pub fn snapshot(&self, path: impl AsRef<Path>, kind: SnapshotKind) -> Result<Self> {
        self.snapshot_to(self, path, kind)
    }

    /// As [`snapshot`](Self::snapshot), named `path` in `other`.
    pub fn snapshot_to(
        &self,
        other: &Self,
        path: impl AsRef<Path>,
        kind: SnapshotKind,
    ) -> Result<Self> {
        other.at(path.as_ref(), |directory, name| {
            let is_read_only = kind == SnapshotKind::ReadOnly;
            self.inner().snapshot(*directory, name, is_read_only).map(Self::new)
        })
    }

    /// Deletes the subvolume at `path` and all that is in it. What there is a handle of works as before, but has
    /// no path any more. With the last handle its room comes back.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |directory, name| directory.delete_subvolume(name))
    }

    /// Makes this subvolume read-only, or not. It is durable when this returns.
    pub fn set_read_only(&self, is_read_only: bool) -> Result<()> {
        Ok(self.inner().set_read_only(is_read_only)?)
    }

    /// Notes that this subvolume was received from the one with this uuid, as transaction `generation` of
    /// that file system left it, sent at `sent`. Returns the transaction and time of receiving, and is
    /// durable then.
    pub fn set_received(
        &self,
        uuid: Uuid,
        generation: u64,
        sent: Timestamp,
    ) -> Result<(u64, Timestamp)> {
        Ok(self.inner().set_received(uuid, generation, sent)?)
    }

    /// Does something with the name at the end of `path` in its directory.
    fn at<T>(
        &self,
        path: &Path,
        act: impl FnOnce(&larder_filesystem::Directory<'_>, &[u8]) -> larder_filesystem::Result<T>,
    ) -> Result<T> {
        let done = self
            .parent_and_name(path)
            .and_then(|(directory, name)| act(&directory.as_directory()?, name));
        done.map_err(|error| Error::from(error).about(path))
    }

    fn parent_and_name<'p>(
        &self,
        path: &'p Path,
    ) -> larder_filesystem::Result<(larder_filesystem::Inode, &'p [u8])> {
        let name = path.file_name().map_or(&b"."[..], OsStr::as_bytes);
        let parent = path.parent().map_or(&b""[..], path::bytes);
        let root = self.inner().root()?;
        Ok((root.resolve(&root, parent, true)?, name))
    }
}

impl Directory {
    /// Makes a regular file without a name, as `new` says; see [`Subvolume::create_unnamed`].
    pub fn create_unnamed(&self, new: &NewInode) -> Result<File> {
        Inode::new(self.inner().create_unnamed(new)?).into_file()
    }
}

impl Inode {
    /// Changes attributes.
    pub fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        Ok(self.inner().set_attributes(attributes)?)
    }

    /// Sets the times of last access and of the last change of content to now, each if it is asked for. What is
    /// append-only allows that, and no other change of times.
    pub fn touch(&self, of_access: bool, of_content: bool) -> Result<()> {
        Ok(self.inner().touch(of_access, of_content)?)
    }

    /// Sets the flags as `FS_IOC_SETFLAGS` (`chattr`) numbers them, see [`Metadata::ioctl_flags`]: those that
    /// can be changed and are not given are cleared.
    ///
    /// [`Metadata::ioctl_flags`]: crate::Metadata::ioctl_flags
    pub fn set_ioctl_flags(&self, flags: u32) -> Result<()> {
        Ok(self.inner().set_ioctl_flags(flags)?)
    }

    /// Clears the setuid bit, the setgid bit of a file that its group may execute, and the file's
    /// capabilities. If the caller's user is not in the file's group (`is_in_group`), the setgid bit
    /// of any file goes. Writing clears capabilities only: the library does not know the user.
    pub fn drop_privileges(&self, is_in_group: bool) -> Result<()> {
        Ok(self.inner().drop_privileges(is_in_group)?)
    }

    /// Sets an extended attribute, whose name includes its namespace. An access ACL changes the mode;
    /// `btrfs.compression` changes flags.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        Ok(self.inner().set_xattr(name_bytes(name.as_ref()), value, mode)?)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        Ok(self.inner().remove_xattr(name_bytes(name.as_ref()))?)
    }
}

/// A regular file that is open for writing: see [`File::open_for_writing`].
#[derive(Clone, Debug)]
pub struct OpenFile {
    inner: larder_filesystem::OpenFile,
}

impl OpenFile {
    /// Writes as [`File::write_at`] does.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.inner.write_at(data, offset)?)
    }

    /// Makes the file `len_bytes` long as [`File::set_len`] does, also if it became immutable.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        Ok(self.inner.truncate(len_bytes)?)
    }

    /// Copies from `source` as [`File::copy_range`] does, also if the file became append-only or
    /// its subvolume read-only: then nothing is shared.
    pub fn copy_range(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<u64> {
        Ok(self.inner.copy_range(source.inner(), source_offset, len_bytes, offset)?)
    }

    /// As [`write_at`](Self::write_at), but the times of the file stay as they are: for a caller
    /// that keeps track of them, and sets them later.
    pub fn write_keeping_times(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.inner.write_keeping_times(data, offset)?)
    }

    /// Sets the times of the last change of content and of the inode, for a caller that has
    /// [written without them](Self::write_keeping_times): also if the file became immutable or append-only, or its
    /// subvolume read-only.
    pub fn set_times_of_writes(&self, mtime: Timestamp, ctime: Timestamp) -> Result<()> {
        Ok(self.inner.set_times_of_writes(mtime, ctime)?)
    }
}

impl File {
    /// Writes `data` from `offset` on, all of it; what lies between the end of the file and `offset` reads
    /// as zeros. It is read back at once, and durable after a sync.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.inner().write_at(data, offset)?)
    }

    /// Opens the file for writing, which decides whether it may be written to: not in a read-only subvolume, not
    /// if it is immutable, and if it is append-only no other way than `appends`, by which all writes go to its end.
    /// What is open stays so whatever becomes of the inode and the subvolume.
    pub fn open_for_writing(&self, appends: bool) -> Result<OpenFile> {
        Ok(OpenFile { inner: self.inner().open_for_writing(appends)? })
    }

    /// Makes the file `len_bytes` long: what is cut off is gone, what is added reads as zeros.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        Ok(self.inner().truncate(len_bytes)?)
    }

    /// Makes `len_bytes` from `offset` on a hole: they read as zeros, and whole sectors among them take no
    /// space any more. The size stays as it is.
    pub fn punch_hole(&self, offset: u64, len_bytes: u64) -> Result<()> {
        Ok(self.inner().punch_hole(offset, len_bytes)?)
    }

    /// Sees to it that there is room for `len_bytes` from `offset` on: writing there needs no new space,
    /// as long as nothing shares it. What the file has stays as it is; the rest reads as zeros.
    pub fn allocate(&self, offset: u64, len_bytes: u64, mode: AllocateMode) -> Result<()> {
        Ok(self.inner().allocate(offset, len_bytes, mode)?)
    }

    /// Makes `len_bytes` from `offset` on zeros, with room for them as [`allocate`](Self::allocate) gives.
    pub fn zero_range(&self, offset: u64, len_bytes: u64, mode: AllocateMode) -> Result<()> {
        Ok(self.inner().zero_range(offset, len_bytes, mode)?)
    }

    /// Writes data that is compressed already at `offset`, a sector's start, as it is. It ends with a sector
    /// too, or at the end of the file or behind it. It is decompressed once, to see that it can be;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if not, and for a file without checksums.
    pub fn write_encoded(&self, data: &[u8], encoded: &Encoded, offset: u64) -> Result<()> {
        Ok(self.inner().write_encoded(data, encoded, offset)?)
    }

    /// Makes `len_bytes` from `offset` on share the data that `source`, which may be this file or lie in
    /// another subvolume, has from `source_offset` on; with 0, all up to the end of `source`.
    ///
    /// Offsets and length are whole sectors, but for a range that ends with `source` and does not end
    /// within this file. [`InvalidInput`](crate::ErrorKind::InvalidInput) for other ranges, for one that
    /// overlaps itself, and where only one of the files has checksums.
    pub fn clone_range(
        &self,
        source: &Self,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<()> {
        Ok(self.inner().clone_range(source.inner(), source_offset, len_bytes, offset)?)
    }

    /// As [`clone_range`](Self::clone_range), if both ranges have the same bytes, which is looked
    /// at while no thread can change them. Returns how many bytes were: what is less than a sector
    /// is left out unless both files end there. `None` if they differ.
    pub fn dedupe_range(
        &self,
        source: &Self,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<Option<u64>> {
        Ok(self.inner().dedupe_range(source.inner(), source_offset, len_bytes, offset)?)
    }

    /// Copies up to `len_bytes` that `source` has from `source_offset` on to `offset`, of any alignment.
    /// What can be shared is shared. Returns how many bytes were copied: fewer than asked for only at the
    /// end of `source`.
    pub fn copy_range(
        &self,
        source: &Self,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<u64> {
        Ok(self.inner().copy_range(source.inner(), source_offset, len_bytes, offset)?)
    }
}

impl Inode {
    /// Makes what was done to this inode durable: the data of a file, the entries of a directory,
    /// attributes and names of either. That takes far less than a commit, unless it must be one.
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner().sync()?)
    }

    /// As [`sync`](Self::sync), for callers that can do without times: they come along, since they
    /// cost nothing. Neither does anything for what did not change since it was durable.
    pub fn sync_data(&self) -> Result<()> {
        self.sync()
    }
}

fn new_inode(mode: u32, device: (u32, u32)) -> NewInode {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    NewInode { mode, uid, gid, umask: 0, device }
}
