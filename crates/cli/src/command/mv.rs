//! `larder mv`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder_copy::Keep;
use larder_format::OwnerMap;

use super::cp::{self, Copying};
use crate::interrupt;
use crate::on_mount::{self, OnMount};
use crate::outcome::{Outcome, exit_code};
use crate::source::{PathSource, Writing};

/// Move or rename files in a file system that is not mounted, or on a mount of larder
///
/// On a mount, what comes from another subvolume or another file system is copied by the server and
/// then removed. Only root and the user who mounted it may ask for that; others use the system's
/// mv.
///
/// Examples:
///   larder mv disk.img:/etc/fstab disk.img:/etc/fstab.old
///   larder mv photos /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Mv {
    #[command(flatten)]
    source: PathSource,
    /// What to move
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    sources: Vec<OsString>,
    /// A directory to move into, or the new name
    #[arg(value_name = "IMAGE:/DEST|DEST")]
    destination: OsString,
}

impl Mv {
    pub fn run(self) -> Outcome {
        if let Some(destination) = self.source.mounted_path(&self.destination)? {
            interrupt::watch()?;
            return self.move_on_mount(destination).map(exit_code);
        }
        self.source.change(&self.destination, |writing| self.rename(writing).map(|()| 0))
    }

    fn move_on_mount(&self, destination: &Path) -> anyhow::Result<usize> {
        let into = destination.is_dir();
        let shown = destination.display();
        ensure!(into || self.sources.len() == 1, "{shown}: several sources need a directory");
        let mut failures = 0;
        for source in &self.sources {
            interrupt::check()?;
            let named = || source.display().to_string();
            let path = Path::new(source);
            let target = if into {
                destination
                    .join(path.file_name().with_context(|| format!("{}: has no name", named()))?)
            } else {
                destination.to_owned()
            };
            // Two names of one file: rename(2) would leave both.
            if is_same_file(path, &target) {
                bail!("'{}' and '{}' are the same file", path.display(), target.display());
            }
            match fs::rename(path, &target) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    bail!("{}: cannot be moved into itself", named());
                }
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    failures += copy_and_remove(path, &target).with_context(named)?;
                }
                renamed => renamed.with_context(named)?,
            }
        }
        Ok(failures)
    }

    fn rename(&self, writing: &Writing) -> anyhow::Result<()> {
        let destination = PathBuf::from(writing.path(&self.destination)?);
        let into = writing.start.open_directory(&destination).is_ok();
        let destination_text = self.destination.display();
        ensure!(
            into || self.sources.len() == 1,
            "{destination_text}: several sources need a directory"
        );
        for text in &self.sources {
            let path = writing.path(text)?;
            let is_root = Path::new(&path) == Path::new("/");
            ensure!(!is_root, "{}: the root directory cannot be moved", text.display());
            let target = if into {
                let name = Path::new(&path).file_name();
                destination.join(name.with_context(|| format!("{}: has no name", text.display()))?)
            } else {
                destination.clone()
            };
            writing.start.rename(&path, &target)?;
        }
        Ok(())
    }
}

/// Whether two different names are those of one inode that is no directory.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.symlink_metadata(), other.symlink_metadata()) else {
        return false;
    };
    !one.is_dir() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Moves `source` to `target`, which lies in another subvolume or file system. Returns how many
/// failures were reported; then the source stays.
fn copy_and_remove(source: &Path, target: &Path) -> anyhow::Result<usize> {
    if target.is_dir() && !target.is_symlink() {
        // As a rename, this replaces an empty directory only.
        ensure!(source.is_dir(), "{}: is a directory", target.display());
        fs::remove_dir(target).with_context(|| target.display().to_string())?;
    }
    let sources = [source.as_os_str().to_owned()];
    let map = OwnerMap::default();
    let options =
        Copying { keep: Keep::Everything, takes_directories: true, overwrites: false, map: &map };
    let failures = cp::onto_mount(&sources, target, options)?;
    if failures > 0 {
        return Ok(failures);
    }
    let device = |path: &Path| path.symlink_metadata().map(|found| found.dev());
    let removed = if device(source)? == device(target)? {
        // Another subvolume of the mount.
        let remove =
            |changes: &mut OnMount, path: &Path| on_mount::remove(changes, path).map(|()| 0);
        on_mount::with_each([source], remove)
    } else if source.is_dir() && !source.is_symlink() {
        fs::remove_dir_all(source).map(|()| 0).map_err(Into::into)
    } else {
        fs::remove_file(source).map(|()| 0).map_err(Into::into)
    };
    removed.context("is copied, but cannot be removed")
}
