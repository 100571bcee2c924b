//! Subvolumes of a file system that is mounted, by larder or by the kernel.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::target::parent_of;

/// A name in a directory of a mounted file system. The directory is open: it stays the same one,
/// whoever renames it meanwhile or puts a symbolic link in its place.
pub struct ParentAndName {
    directory: File,
    /// The path of the directory.
    shown: PathBuf,
    name: OsString,
}

/// Id of the subvolume whose root is at `path`.
pub fn subvolume_at(path: &Path) -> anyhow::Result<u64> {
    let named = || path.display().to_string();
    let root = File::open(path).with_context(named)?;
    expect_root(&root).with_context(named)?;
    larder_ioctl::subvolume_id(root).with_context(named)
}

/// Fails if `file` is no root of a subvolume: only those have flags of subvolumes.
fn expect_root(file: &File) -> anyhow::Result<()> {
    match larder_ioctl::is_read_only(file) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            bail!("not a subvolume")
        }
        asked => Ok(asked.map(drop)?),
    }
}

/// Whether the subvolume with this root is gone, though its root is still open.
fn is_deleted(root: &File) -> bool {
    larder_ioctl::subvolume_info(root).as_ref().is_err_and(is_not_found)
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

impl ParentAndName {
    /// The directory and name of `path`, which need not exist.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().with_context(|| format!("{}: no name", path.display()))?;
        let shown = parent_of(path).to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(CWD, &shown, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => bail!("{}: not a directory", shown.display()),
            opened => opened.with_context(|| shown.display().to_string())?.into(),
        };
        Ok(Self { directory, shown, name: name.to_owned() })
    }

    /// Another name in the same directory.
    pub fn beside(&self, name: OsString) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, shown: self.shown.clone(), name })
    }

    /// The names in the directory.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let name = |entry: DirEntry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        Ok(Dir::read_from(&self.directory)?
            .map(|entry| entry.map(name))
            .collect::<Result<_, _>>()?)
    }

    /// The directory.
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.shown.join(&self.name)
    }

    /// Fails if there is no root of a subvolume here. Accepts a directory that this user may not
    /// look into: the file system decides about that one.
    pub fn expect_subvolume(&self) -> anyhow::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => Ok(()),
            Err(Errno::LOOP) => bail!("not a subvolume"),
            root => expect_root(&root?.into()),
        }
    }

    /// Makes a subvolume here.
    pub fn create(&self) -> anyhow::Result<()> {
        if statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(io::Error::from(Errno::EXIST).into());
        }
        Ok(larder_ioctl::create_subvolume(&self.directory, self.name.as_bytes())?)
    }

    /// Deletes the subvolume here.
    pub fn delete(&self) -> anyhow::Result<()> {
        match larder_ioctl::delete_subvolume(&self.directory, self.name.as_bytes()) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => bail!(
                "is mounted here; unmount it, and name it by its path in another mount, or by \
                 --subvolid"
            ),
            deleted => Ok(deleted?),
        }
    }

    /// Takes a snapshot of the subvolume at `source` here.
    pub fn snapshot(&self, source: &Path, is_read_only: bool) -> anyhow::Result<()> {
        let named = || source.display().to_string();
        let root = File::open(source).with_context(named)?;
        expect_root(&root).with_context(named)?;
        let name = self.name.as_bytes();
        let taken = larder_ioctl::create_snapshot(&self.directory, &root, name, is_read_only);
        if taken.as_ref().is_err_and(is_not_found) && is_deleted(&root) {
            bail!("{}: the subvolume was deleted", source.display());
        }
        taken.with_context(|| self.path().display().to_string())
    }
}

impl fmt::Display for ParentAndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}
