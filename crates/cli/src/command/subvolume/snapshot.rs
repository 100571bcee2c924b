//! `larder subvolume snapshot`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::SnapshotKind;

use super::mounted::Place;
use crate::command::Outcome;
use crate::source::PathSource;
use crate::target::mounted_path;

/// Take a snapshot of a subvolume
///
/// Examples:
///   larder subvolume snapshot -r disk.img:/home disk.img:/snapshots/monday
///   larder subvolume snapshot -r mnt/home mnt/snapshots/monday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Snapshot {
    /// Make it read-only
    #[arg(short)]
    read_only: bool,
    #[command(flatten)]
    source: PathSource,
    /// The subvolume, in an image or in a file system that is mounted
    #[arg(value_name = "IMAGE:/SOURCE or SOURCE")]
    subvolume: OsString,
    /// The snapshot, or a directory to make it in under the subvolume's name
    #[arg(value_name = "IMAGE:/DEST or DEST")]
    destination: OsString,
}

impl Snapshot {
    pub fn run(self) -> Outcome {
        if mounted_path(&self.subvolume).is_some() {
            self.take_mounted()?;
        } else {
            self.take_in_image()?;
        }
        let what = if self.read_only { "readonly snapshot" } else { "snapshot" };
        println!(
            "Create a {what} of '{}' in '{}'",
            self.subvolume.display(),
            self.destination.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    fn take_mounted(&self) -> anyhow::Result<()> {
        let source = Path::new(&self.subvolume);
        let mut destination = PathBuf::from(&self.destination);
        if destination.is_dir() {
            let source = source.canonicalize()?;
            destination.push(source.file_name().context("the snapshot needs a name of its own")?);
        }
        let taken = Place::of(&destination)?.snapshot(source, self.read_only);
        taken.with_context(|| destination.display().to_string())
    }

    fn take_in_image(&self) -> anyhow::Result<()> {
        let writing = self.source.write(&self.subvolume)?;
        let source = writing.path(&self.subvolume)?;
        let subvolume = writing.start.lookup(&source)?.into_subvolume();
        let subvolume = subvolume.with_context(|| self.subvolume.display().to_string())?;
        let mut destination = PathBuf::from(writing.path(&self.destination)?);
        if writing.start.open_directory(&destination).is_ok() {
            let name = Path::new(&source).file_name();
            destination.push(name.context("the snapshot needs a name of its own")?);
        }
        let kind = if self.read_only { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        subvolume.snapshot_to(&writing.start, &destination, kind)?;
        Ok(())
    }
}
