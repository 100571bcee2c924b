//! Subvolumes of a file system that is mounted, by larder or by the kernel.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::target::Target;

/// A name in a directory of a mounted file system.
pub struct Place {
    directory: PathBuf,
    name: OsString,
}

/// Whether `text` means something in a file system that is mounted: it is no `IMAGE:/PATH` of an image that
/// is there, and it lies in a directory.
pub fn is_mounted(text: &OsStr) -> bool {
    let is_image = text.as_bytes().windows(2).any(|two| two == b":/")
        && Target::parse(text).image.symlink_metadata().is_ok();
    let path = Path::new(text);
    !is_image && (path.is_dir() || (!path.exists() && Place::of(path).is_ok()))
}

impl Place {
    /// Where `path` is, which need not exist.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().with_context(|| format!("{}: no name", path.display()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new(".")).to_owned();
        anyhow::ensure!(directory.is_dir(), "{}: not a directory", directory.display());
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Makes a subvolume here.
    pub fn create(&self) -> anyhow::Result<()> {
        Ok(larder_ioctl::create_subvolume(self.open()?, self.name.as_bytes())?)
    }

    /// Deletes the subvolume here.
    pub fn delete(&self) -> anyhow::Result<()> {
        Ok(larder_ioctl::delete_subvolume(self.open()?, self.name.as_bytes())?)
    }

    /// Takes a snapshot of the subvolume at `source` here.
    pub fn snapshot(&self, source: &Path, is_read_only: bool) -> anyhow::Result<()> {
        let source = File::open(source)?;
        Ok(larder_ioctl::create_snapshot(self.open()?, source, self.name.as_bytes(), is_read_only)?)
    }

    fn open(&self) -> anyhow::Result<File> {
        File::open(&self.directory).with_context(|| self.directory.display().to_string())
    }
}
