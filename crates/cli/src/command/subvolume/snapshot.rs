//! `larder subvolume snapshot`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::SnapshotKind;

use crate::command::Outcome;
use crate::source::PathSource;

/// Take a snapshot of a subvolume
///
/// Example: larder subvolume snapshot -r disk.img:/home disk.img:/snapshots/monday
#[derive(Debug, Args)]
pub struct Snapshot {
    /// Make it read-only
    #[arg(short)]
    read_only: bool,
    #[command(flatten)]
    source: PathSource,
    /// The subvolume
    #[arg(value_name = "IMAGE:/SOURCE")]
    subvolume: OsString,
    /// The snapshot, or a directory to make it in under the subvolume's name
    #[arg(value_name = "IMAGE:/DEST")]
    destination: OsString,
}

impl Snapshot {
    pub fn run(self) -> Outcome {
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
        let what = if self.read_only { "readonly snapshot" } else { "snapshot" };
        println!(
            "Create a {what} of '{}' in '{}'",
            self.subvolume.display(),
            self.destination.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}
