//! Changing attributes in trees.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{AtFlags, Stat, fstat, statat};

use super::OnMount;
use super::walk::{Visitor, walk};
use crate::progress::Progress;

/// Changes the attributes of `path`, a name in the directory of `changes`, and of everything below
/// if `recursive`: `change` does it for a path, from the present attributes. Returns how many
/// errors were reported.
pub fn change_attributes(
    changes: &mut OnMount,
    path: &Path,
    recursive: bool,
    change: impl Fn(&mut OnMount, &[u8], &Stat) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let name = path.file_name().context("it has no name")?;
    let directory = changes.directory().try_clone_to_owned()?;
    if !recursive {
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        change(changes, name.as_bytes(), &found)?;
        return Ok(0);
    }
    let mut each = Each { changes, change, progress: Progress::of_files() };
    walk(directory.as_fd(), name, &mut each)
}

struct Each<'c, F> {
    changes: &'c mut OnMount,
    change: F,
    progress: Progress,
}

impl<F: Fn(&mut OnMount, &[u8], &Stat) -> anyhow::Result<()>> Visitor for Each<'_, F> {
    fn enter(&mut self, path: &[u8], directory: BorrowedFd<'_>) -> anyhow::Result<()> {
        self.progress.add(1);
        (self.change)(self.changes, path, &fstat(directory)?)
    }

    fn visit(&mut self, path: &[u8], at: BorrowedFd<'_>, name: &OsStr) -> anyhow::Result<()> {
        self.progress.add(1);
        (self.change)(self.changes, path, &statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn leave(&mut self, _: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}
