//! `larder rm`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use larder::{ErrorKind, FileType, Subvolume};

use crate::interrupt;
use crate::on_mount;
use crate::outcome::{Outcome, exit_code};
use crate::progress::Progress;
use crate::source::{PathSource, Writing};
use crate::tree::{Visited, Visitor, walk};

/// Remove files from a file system that is not mounted, or from a mount of larder
///
/// On a mount the server removes them, faster than a program can. Only root and the user who
/// mounted it may ask for that; others use the system's rm.
///
/// Examples:
///   larder rm -r disk.img:/var/cache
///   larder rm -r /mnt/old
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Rm {
    /// Directories and subvolumes too, with all that is in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Pass over paths that do not exist
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
}

impl Rm {
    pub fn run(self) -> Outcome {
        if self.source.mounted_path(&self.paths[0])?.is_some() {
            return self.remove_on_mount();
        }
        self.source.change(&self.paths[0], |writing| self.remove(writing))
    }

    fn remove_on_mount(&self) -> Outcome {
        interrupt::watch()?;
        for path in &self.paths {
            let last = path.as_bytes().rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
            let is_dots = matches!(last, Some(b"." | b".."));
            ensure!(!is_dots, "{}: is not removed; name the directory", path.display());
        }
        let there = self.paths.iter().map(Path::new).filter(|path| {
            let is_missing = || path.symlink_metadata().is_err_and(|error| is_not_found(&error));
            !(self.force && is_missing())
        });
        let failures = on_mount::with_each(there, |changes, path| {
            let is_directory = path.symlink_metadata()?.is_dir();
            ensure!(!is_directory || self.recursive, "is a directory (use --recursive)");
            on_mount::remove(changes, path).map(|()| 0)
        })?;
        Ok(exit_code(failures))
    }

    fn remove(&self, writing: &Writing) -> anyhow::Result<usize> {
        interrupt::watch()?;
        let mut failures = 0;
        for text in &self.paths {
            let path = writing.path(text)?;
            let inode = match writing.start.lookup(&path) {
                Err(error) if self.force && error.kind() == ErrorKind::NotFound => continue,
                found => found?,
            };
            if inode.file_type() == FileType::Directory && !self.recursive {
                bail!("{}: is a directory (use --recursive)", text.display());
            }
            if inode.is_subvolume_root() && inode.subvolume_id() == writing.start.id() {
                bail!("{}: the root directory cannot be removed", text.display());
            }
            let (root, progress) = (PathBuf::from(path), Progress::of_files());
            let mut removal = Removal { start: &writing.start, root, progress };
            failures += walk(&inode, &mut removal)?;
        }
        Ok(failures)
    }
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes the inodes of a walk.
struct Removal<'a> {
    start: &'a Subvolume,
    root: PathBuf,
    progress: Progress,
}

impl Removal<'_> {
    fn path(&self, below: &Path) -> PathBuf {
        if below.as_os_str().is_empty() { self.root.clone() } else { self.root.join(below) }
    }
}

impl Visitor for Removal<'_> {
    fn enter(&mut self, _: &Visited<'_>) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.progress.add(1);
        Ok(self.start.remove_file(self.path(node.path))?)
    }

    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.progress.add(1);
        Ok(self.start.remove_directory(self.path(node.path))?)
    }
}
