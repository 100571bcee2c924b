//! Reading trees through the server.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::bail;
use larder::{MountedWalk, WalkOptions, Walked};
use larder_fuse::usage::MountTable;
use rustix::fs::{CWD, Mode};

use super::{DIRECTORY, MountPath, NOT_OURS};
use crate::interrupt;
use crate::on_one_line;
use crate::reason::in_words;

/// The number of names in the tree at `path`, if it can be read.
pub fn count(path: &Path) -> Option<u64> {
    let MountPath { directory, name } = MountPath::of(path).ok()?;
    let open = rustix::fs::openat(CWD, &directory, DIRECTORY, Mode::empty()).ok()?;
    let below = WalkOptions { below: true, ..WalkOptions::default() };
    let mut walk = MountedWalk::begin(open, &name, below).ok()??;
    // Directories come twice, except the first.
    let mut names = 1;
    while let Some(walked) = walk.next().ok()? {
        names += u64::from(matches!(walked, Walked::Entry { .. }));
    }
    Some(names)
}

/// A walk that begins at one path.
pub struct Walk {
    walk: MountedWalk,
    /// The directory in which the walk begins.
    directory: PathBuf,
    /// The name there at which it begins.
    name: OsString,
    failures: usize,
}

impl Walk {
    /// Begins at `path`; a symbolic link is not followed. Other file systems that are mounted below
    /// would be missing, so that there must be none.
    pub fn begin(path: &Path, options: WalkOptions) -> anyhow::Result<Self> {
        let MountPath { directory, name } = MountPath::of(path)?;
        let open = rustix::fs::openat(CWD, &directory, DIRECTORY, Mode::empty())?;
        if options.data {
            // What programs wrote to memory that they mapped reaches the server first.
            rustix::fs::syncfs(&open)?;
        }
        let Some(walk) = MountedWalk::begin(open, &name, options)? else {
            if path.is_file() {
                // It may be an image that this user may not read.
                File::open(path)?;
            }
            bail!(NOT_OURS);
        };
        if options.below {
            let top = directory.canonicalize()?.join(&name);
            if let Some(mount) = MountTable::of_this_process()?.below(&top) {
                let place = mount.path.display();
                bail!("another file system is mounted at {place}; use the system's own command");
            }
        }
        Ok(Self { walk, directory, name, failures: 0 })
    }

    /// The next inode. Paths of directories are those from the top. What cannot be read is reported
    /// on standard error.
    pub fn next(&mut self) -> anyhow::Result<Option<Walked>> {
        loop {
            interrupt::check()?;
            match self.walk.next()? {
                Some(Walked::Failed { path, reason }) => self.report(&path, &reason),
                Some(Walked::Directory { path, metadata, xattrs }) => {
                    let path = Path::new(&path).strip_prefix(&self.name)?.into();
                    return Ok(Some(Walked::Directory { path, metadata, xattrs }));
                }
                walked => return Ok(walked),
            }
        }
    }

    /// See [`MountedWalk::read`].
    pub fn read(&mut self, data: &mut Vec<u8>) -> io::Result<Option<u64>> {
        self.walk.read(data)
    }

    /// Reports that something about the inode at `path`, as the walk names it, failed.
    pub fn report(&mut self, path: &OsStr, reason: &str) {
        let reason = on_one_line(&in_words(reason));
        eprintln!("ERROR: {}: {reason}", self.directory.join(path).display());
        self.failures += 1;
    }

    /// How many failures were reported.
    pub fn failures(&self) -> usize {
        self.failures
    }
}
