//! The file that a report goes to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::interrupt::HalfMade;
use crate::target::is_image;

/// A file that is open before the work begins, so that no work is in vain. It keeps what it has
/// until the report is whole and there is space for it; a new one is removed if there will be none.
pub struct ReportFile {
    path: PathBuf,
    file: File,
    made: HalfMade,
}

impl ReportFile {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        if let Ok(metadata) = path.metadata() {
            let is_device = metadata.file_type().is_block_device();
            let is_precious = is_device || (metadata.is_file() && is_image(path));
            ensure!(
                !is_precious,
                "{}: is a device or an image; name another file for the report",
                named()
            );
        }
        let made = HalfMade::of(&[path.to_owned()])?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        Ok(Self { path: path.to_owned(), file: file.with_context(named)?, made })
    }

    pub fn write(mut self, report: &str) -> anyhow::Result<()> {
        let written = self.replace(report);
        written.with_context(|| self.path.display().to_string())?;
        self.made.keep();
        Ok(())
    }

    fn replace(&mut self, report: &str) -> io::Result<()> {
        let (metadata, len_bytes) = (self.file.metadata()?, report.len() as u64);
        // What is no file has no length.
        if !metadata.is_file() {
            return self.file.write_all(report.as_bytes());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, len_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => {
                self.file.set_len(metadata.len())?;
                return Err(errno.into());
            }
        }
        self.file.write_all(report.as_bytes())?;
        self.file.set_len(len_bytes)
    }
}
