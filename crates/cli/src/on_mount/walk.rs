//! Reading trees through the server.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use anyhow::bail;
use larder::{FileType, Metadata, MountedWalk, WalkOptions, Walked};
use larder_fuse::usage::MountTable;
use rustix::fs::{CWD, Mode};

use super::mount_path::{DIRECTORY, MountPath, NOT_OURS};
use crate::interrupt;
use crate::message::on_one_line;

/// The number of names in the tree at `path`, if it can be read.
pub fn count(path: &Path) -> Option<u64> {
    // The top is no entry, unless it is a file.
    sum(path, |_| 1).map(|names| names + u64::from(path.is_dir()))
}

/// The bytes of all files in the tree at `path`, if its server can read it.
pub fn count_bytes(path: &Path) -> Option<u64> {
    sum(path, |entry| if entry.file_type == FileType::Regular { entry.size_bytes } else { 0 })
}

/// Sums up the entries of the tree at `path`.
fn sum(path: &Path, amount: impl Fn(&Metadata) -> u64) -> Option<u64> {
    let MountPath { directory, name } = MountPath::of(path).ok()?;
    let open = rustix::fs::openat(CWD, &directory, DIRECTORY, Mode::empty()).ok()?;
    let below = WalkOptions { below: true, ..WalkOptions::default() };
    let mut walk = MountedWalk::begin(open, &name, below).ok()??;
    let mut total = 0;
    while let Some(walked) = walk.next().ok()? {
        if let Walked::Entry { metadata, .. } = walked {
            total += amount(&metadata);
        }
    }
    Some(total)
}

/// Another file system that is mounted below `path`.
fn mount_below(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let MountPath { directory, name } = MountPath::of(path)?;
    let top = directory.canonicalize()?.join(name);
    let mounts = MountTable::of_this_process()?;
    Ok(mounts.below(&top).map(|mount| mount.path.clone()))
}

/// A walk that begins at one path.
pub struct Walk {
    walk: MountedWalk,
    /// The directory in which the walk begins.
    directory: PathBuf,
    /// The name there at which it begins.
    name: OsString,
    /// What [`next`](Self::next) returns first.
    first: Option<Walked>,
    failures: usize,
}

impl Walk {
    /// Begins at `path`; a symbolic link is not followed. Other file systems that are mounted below
    /// would be missing, so that there must be none.
    pub fn begin(path: &Path, options: WalkOptions) -> anyhow::Result<Self> {
        let Some(walk) = Self::on_larder(path, |_| options)? else {
            if path.is_file() {
                // It may be an image that this user may not read.
                File::open(path)?;
            }
            bail!(NOT_OURS);
        };
        if options.below
            && let Some(mount) = mount_below(path)?
        {
            let place = mount.display();
            bail!("another file system is mounted at {place}; use the system's own command");
        }
        Ok(walk)
    }

    /// As [`begin`](Self::begin), for a caller that can do without: `None` if the path does not lie
    /// on a mount of larder, if its server does not serve this user, if another file system is
    /// mounted below, or after any error.
    ///
    /// `options` gets the directory in which the walk begins.
    pub fn try_begin(
        path: &Path,
        options: impl FnOnce(BorrowedFd<'_>) -> WalkOptions,
    ) -> Option<Self> {
        let mut walk = Self::on_larder(path, options).ok()??;
        walk.first = walk.walk.next().ok()?;
        mount_below(path).ok()?.is_none().then_some(walk)
    }

    fn on_larder(
        path: &Path,
        options: impl FnOnce(BorrowedFd<'_>) -> WalkOptions,
    ) -> anyhow::Result<Option<Self>> {
        let MountPath { directory, name } = MountPath::of(path)?;
        let open = rustix::fs::openat(CWD, &directory, DIRECTORY, Mode::empty())?;
        let options = options(open.as_fd());
        if options.data || options.written {
            // The kernel may keep the times of files that programs write to.
            rustix::fs::syncfs(&open)?;
        }
        let walk = MountedWalk::begin(open, &name, options)?;
        Ok(walk.map(|walk| Self { walk, directory, name, first: None, failures: 0 }))
    }

    /// The next inode. Paths are those from the top. What cannot be read was reported on standard
    /// error.
    pub fn next(&mut self) -> anyhow::Result<Option<Walked>> {
        interrupt::check()?;
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => self.walk.next()?,
        };
        Ok(match next {
            Some(Walked::Failed { path, reason }) => {
                self.report(&path, &reason);
                Some(Walked::Failed { path: self.joined_to_top(&path)?, reason })
            }
            Some(Walked::Directory { path, metadata, xattrs }) => {
                Some(Walked::Directory { path: self.joined_to_top(&path)?, metadata, xattrs })
            }
            walked => walked,
        })
    }

    fn joined_to_top(&self, path: &OsStr) -> anyhow::Result<OsString> {
        Ok(Path::new(path).strip_prefix(&self.name)?.into())
    }

    /// See [`MountedWalk::read`].
    pub fn read(&mut self, data: &mut Vec<u8>) -> io::Result<Option<u64>> {
        self.walk.read(data)
    }

    /// Reports that something about the inode at `path`, as the walk names it, failed.
    pub fn report(&mut self, path: &OsStr, reason: &str) {
        let reason = on_one_line(reason);
        eprintln!("ERROR: {}: {reason}", self.directory.join(path).display());
        self.failures += 1;
    }

    /// How many failures were reported.
    pub fn failures(&self) -> usize {
        self.failures
    }
}
