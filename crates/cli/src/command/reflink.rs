//! `larder reflink`.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::ErrorKind;

use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};

/// Make a copy of a file that shares its data with the original
///
/// Neither changes with the other. If a file has the name of the copy, it keeps its attributes and
/// gets the content.
///
/// Examples:
///   larder reflink disk.img:/var/lib/disk disk.img:/var/lib/disk.before
///   larder reflink ~/mnt/disk ~/mnt/disk.before
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Reflink {
    #[command(flatten)]
    source: PathSource,
    /// The file
    #[arg(value_name = "IMAGE:/SOURCE or SOURCE")]
    original: OsString,
    /// The copy
    #[arg(value_name = "IMAGE:/DEST or DEST")]
    copy: OsString,
}

impl Reflink {
    pub fn run(self) -> Outcome {
        let source = &self.source;
        match (source.mounted_path(&self.original)?, source.mounted_path(&self.copy)?) {
            (Some(original), Some(copy)) => copy_mounted(original, copy),
            (None, None) => self.copy_in_image(),
            _ => bail!(
                "{} and {} are not in one file system, which data is shared in",
                self.original.display(),
                self.copy.display()
            ),
        }
    }

    fn copy_in_image(&self) -> Outcome {
        self.source.change(&self.copy, |writing| self.copy_within(writing).map(|()| 0))
    }

    fn copy_within(&self, writing: &Writing) -> anyhow::Result<()> {
        let (original, copy) = (writing.path(&self.original)?, writing.path(&self.copy)?);
        let original = writing.start.open_file(original)?;
        let permissions = original.metadata().mode & 0o777;
        let file = match writing.create_file(&copy, permissions) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = writing.start.open_file(&copy)?;
                ensure!(file != original, "{}: is the same file", self.copy.display());
                file.set_len(0)?;
                file
            }
            created => created?,
        };
        file.clone_range(&original, 0, original.len_bytes(), 0)?;
        Ok(())
    }
}

/// Copies in a mounted file system.
fn copy_mounted(original: &Path, copy: &Path) -> Outcome {
    let source = File::open(original).with_context(|| original.display().to_string())?;
    let permissions = source.metadata()?.permissions().mode() & 0o777;
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(permissions);
    let target = options.open(copy).with_context(|| copy.display().to_string())?;
    let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    ensure!(id(&source)? != id(&target)?, "{}: is the same file", copy.display());
    target.set_len(0)?;
    larder_ioctl::clone_file(target, source).with_context(|| copy.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
