//! `larder reflink`.

use std::ffi::OsString;

use anyhow::ensure;
use clap::Args;
use larder::ErrorKind;

use super::Outcome;
use crate::source::PathSource;

/// Make a copy of a file that shares its data with the original, in a file system that is not mounted
///
/// Neither changes with the other. A file that has the name of the copy keeps its attributes and gets
/// the content.
///
/// Example: larder reflink disk.img:/var/lib/disk disk.img:/var/lib/disk.before
#[derive(Debug, Args)]
pub struct Reflink {
    #[command(flatten)]
    source: PathSource,
    /// The file
    #[arg(value_name = "IMAGE:/SOURCE")]
    original: OsString,
    /// The copy
    #[arg(value_name = "IMAGE:/DEST")]
    copy: OsString,
}

impl Reflink {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(&self.copy)?;
        let (original, copy) = (writing.path(&self.original)?, writing.path(&self.copy)?);
        let original = writing.start.open_file(original)?;
        let permissions = original.metadata().mode & 0o777;
        let file = match writing.start.create(&copy, permissions) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = writing.start.open_file(&copy)?;
                ensure!(file != original, "{}: is the same file", self.copy.display());
                file.set_len(0)?;
                file
            }
            created => created?,
        };
        file.clone_range(&original, 0, original.len_bytes(), 0)?;
        writing.end(0)
    }
}
