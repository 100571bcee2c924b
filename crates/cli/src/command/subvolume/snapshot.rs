//! `larder subvolume snapshot`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::SnapshotKind;

use super::mounted::ParentAndName;
use crate::command::Outcome;
use crate::global::Global;
use crate::output::stdout;
use crate::source::{PathSource, on_image};
use crate::target::Target;

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
    pub fn run(self, global: &Global) -> Outcome {
        let taken = match self.source.mounted_path(&self.subvolume)? {
            Some(source) => self.take_mounted(source)?,
            None => self.take_in_image()?,
        };
        if global.is_quiet() {
            return Ok(ExitCode::SUCCESS);
        }
        let what = if self.read_only { "readonly snapshot" } else { "snapshot" };
        writeln!(
            stdout(),
            "Create a {what} of '{}' in '{}'",
            self.subvolume.display(),
            taken.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }

    /// Takes it in a mounted file system. Returns its path.
    fn take_mounted(&self, source: &Path) -> anyhow::Result<PathBuf> {
        let mut destination = PathBuf::from(&self.destination);
        if destination.is_dir() {
            let source = source.canonicalize().with_context(|| source.display().to_string())?;
            destination.push(source.file_name().with_context(|| self.nameless())?);
        }
        let named = ParentAndName::of(&destination)?;
        let taken = named.snapshot(source, self.read_only);
        taken.with_context(|| destination.display().to_string())?;
        Ok(named.path())
    }

    /// Takes it in an image. Returns its name for the user: the image and its path there.
    fn take_in_image(&self) -> anyhow::Result<PathBuf> {
        let writing = self.source.write(&self.subvolume)?;
        let source = writing.path(&self.subvolume)?;
        let named = || on_image(&Target::parse(&self.subvolume).image);
        let subvolume = writing.start.lookup(&source).with_context(named)?.into_subvolume();
        let subvolume = subvolume.with_context(|| self.subvolume.display().to_string())?;
        let mut destination = PathBuf::from(writing.path(&self.destination)?);
        if writing.start.open_directory(&destination).is_ok() {
            let name = Path::new(&source).file_name();
            destination.push(name.with_context(|| self.nameless())?);
        }
        let kind = if self.read_only { SnapshotKind::ReadOnly } else { SnapshotKind::Writable };
        let taken = subvolume.snapshot_to(&writing.start, &destination, kind);
        taken.with_context(named)?;
        Ok(writing.shown(&destination))
    }

    fn nameless(&self) -> String {
        let (source, destination) = (self.subvolume.display(), self.destination.display());
        format!("{destination}: is a directory, and {source} has no name to take; add one")
    }
}
