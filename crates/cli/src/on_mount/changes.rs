//! Changes below a directory of a mount.

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
use rustix::fs::{CWD, Mode, StatVfsMountFlags};

use super::mount_path::{DIRECTORY, NOT_OURS};
use crate::interrupt;
use crate::message::on_one_line;
use crate::progress::Progress;

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
                    let reason = on_one_line(reason);
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
    pub fn expect_removals(&self, names: u64) {
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
