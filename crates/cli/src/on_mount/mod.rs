//! Changes on a mount of larder. Its server makes them for this process, many at a time, which is
//! faster than one call after the other through the kernel.

mod attributes;
mod destination;
mod mount_path;
mod remove;
mod walk;

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, ensure};
use larder::commands::{Command, Original};
use larder::{ChangeEvent, MountedChanges};
use larder_copy::Gone;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};

use crate::interrupt;
use crate::progress::Progress;
use crate::reason::in_words;
use crate::{message, on_one_line};

pub use attributes::{Present, change_attributes};
pub use destination::OntoMount;
pub use remove::remove;
pub use walk::{Walk, count_bytes};

use mount_path::MountPath;
pub use mount_path::is_ours;

/// A path on any other file system.
const NOT_OURS: &str = "is not on a mount of larder; use the system's own command";
/// How directories are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Changes below a directory of a mount.
pub struct OnMount {
    directory: OwnedFd,
    /// Its path.
    path: PathBuf,
    changes: MountedChanges,
    /// Names that will be removed, for a terminal.
    removals: Arc<AtomicU64>,
}

impl OnMount {
    /// Begins changes below `directory`, because a command names `operand`. Each change that the
    /// server cannot make is reported on standard error.
    pub fn below(directory: &Path, operand: &Path) -> anyhow::Result<Self> {
        let named = || operand.display().to_string();
        let open = rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty());
        let open = open.with_context(named)?;
        let flags = rustix::fs::fstatvfs(&open).with_context(named)?.f_flag;
        let is_read_only = flags.contains(StatVfsMountFlags::RDONLY);
        ensure!(!is_read_only, "{}: Read-only file system", named());
        let shown = directory.to_owned();
        let mut progress = Progress::of_files();
        let removals: Arc<AtomicU64> = Arc::default();
        let expected = removals.clone();
        let observe = move |event: ChangeEvent<'_>| {
            match event {
                ChangeEvent::Failed(reason) => {
                    let reason = on_one_line(&in_words(reason));
                    progress.say(&format!("ERROR: {}: {reason}", shown.display()));
                }
                ChangeEvent::Removed(names) => {
                    match expected.load(Relaxed) {
                        0 => {}
                        expected => progress.expect(expected),
                    }
                    progress.set(names);
                }
            }
            if interrupt::check().is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let changes = MountedChanges::below(&open, observe).with_context(named)?;
        let changes = changes.with_context(|| format!("{}: {NOT_OURS}", named()))?;
        Ok(Self { directory: open, path: directory.to_owned(), changes, removals })
    }

    /// Says that so many names more will be removed.
    fn expect_removals(&self, names: u64) {
        self.removals.fetch_add(names, Relaxed);
    }

    /// The name of `path`, from the directory on, as users write it.
    pub fn shown(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// See [`MountedChanges::directory_beside`].
    pub fn directory_beside(&mut self, inode: BorrowedFd<'_>) -> Option<(u64, u64)> {
        self.changes.directory_beside(inode).ok().flatten()
    }

    /// Makes a change, at a path from the directory.
    pub fn make(&mut self, command: &Command<'_>) -> anyhow::Result<()> {
        self.changes.make(command).map_err(unmade)
    }

    /// Makes a change, at a path from the directory, if that leads to `inode` by then.
    pub fn make_on(&mut self, inode: Original, command: &Command<'_>) -> anyhow::Result<()> {
        self.changes.make_on(inode, command).map_err(unmade)
    }

    /// Gives a new file the content of another one of the same mount.
    pub fn copy(&mut self, path: &Path, original: Original) -> anyhow::Result<()> {
        self.changes.copy(path.as_os_str().as_bytes(), original).map_err(unmade)
    }

    /// Waits until all changes are made. Returns how many failed.
    pub fn finish(self) -> anyhow::Result<usize> {
        let finished = self.changes.finish();
        interrupt::check()?;
        Ok(finished? as usize)
    }
}

fn unmade(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => error.into(),
        _ => Gone(error).into(),
    }
}

/// A path whose last part is a name: one that ends with a symbolic link leads where the link does,
/// if `follows`, and so does one that ends with a slash, `.` or `..`.
pub fn resolved(path: &Path, follows: bool) -> anyhow::Result<PathBuf> {
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let is_name = ends_with_name(path) && !(is_link && follows);
    let found = if is_name { Ok(path.to_owned()) } else { path.canonicalize() };
    found.with_context(|| path.display().to_string())
}

/// Whether a path ends with a name, and not with a slash, `.` or `..`.
pub fn ends_with_name(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
    !matches!(last, None | Some(b"" | b"." | b".."))
}

/// As [`resolved`], for many.
pub fn all_resolved(paths: &[OsString], follows: bool) -> anyhow::Result<Vec<PathBuf>> {
    paths.iter().map(|path| resolved(Path::new(path), follows)).collect()
}

/// Does `work` with every path, and the changes below the directory of its [`MountPath`]. An error is
/// reported, and the next path follows. Returns how many changes failed, with those that `work`
/// reported itself.
pub fn with_each<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    mut work: impl FnMut(&mut OnMount, &Path) -> anyhow::Result<usize>,
) -> anyhow::Result<usize> {
    let mut failures = 0;
    let mut open: Option<(PathBuf, OnMount)> = None;
    for path in paths {
        match with_one(path.as_ref(), &mut open, &mut work) {
            Ok(failed) => failures += failed,
            Err(error) if Gone::is_behind(&error) => return Err(error),
            Err(error) => {
                interrupt::check()?;
                eprintln!("ERROR: {}", message(&error));
                failures += 1;
            }
        }
    }
    if let Some((_, changes)) = open {
        failures += changes.finish()?;
    }
    Ok(failures)
}

/// Does `work` with `path`. The changes that are `open` are used if they are below its directory, and
/// otherwise finished. Returns how many changes failed.
fn with_one(
    path: &Path,
    open: &mut Option<(PathBuf, OnMount)>,
    work: &mut impl FnMut(&mut OnMount, &Path) -> anyhow::Result<usize>,
) -> anyhow::Result<usize> {
    let named = || path.display().to_string();
    let MountPath { directory: parent, .. } = MountPath::of(path).with_context(named)?;
    let mut failures = 0;
    if open.as_ref().is_none_or(|(directory, _)| *directory != parent) {
        if let Some((_, changes)) = open.take() {
            failures += changes.finish()?;
        }
        let changes = OnMount::below(&parent, path)?;
        *open = Some((parent, changes));
    }
    if let Some((_, changes)) = open {
        failures += work(changes, path).with_context(named)?;
    }
    Ok(failures)
}
