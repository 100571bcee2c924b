//! `larder subvolume delete`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::mounted::Place;
use crate::command::Outcome;
use crate::source::PathSource;
use crate::target::mounted_path;

/// Delete subvolumes and snapshots with all that is in them
///
/// Examples:
///   larder subvolume delete disk.img:/snapshots/monday
///   larder subvolume delete mnt/snapshots/monday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Delete {
    #[command(flatten)]
    source: PathSource,
    /// The subvolumes, in one image or in file systems that are mounted
    #[arg(required = true, value_name = "IMAGE:/PATH or PATH")]
    paths: Vec<OsString>,
}

impl Delete {
    pub fn run(self) -> Outcome {
        if self.paths.iter().all(|path| mounted_path(path).is_some()) {
            for path in &self.paths {
                println!("Delete subvolume: '{}'", path.display());
                let deleted = Place::of(path.as_ref()).and_then(|place| place.delete());
                deleted.with_context(|| path.display().to_string())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let writing = self.source.write(&self.paths[0])?;
        for text in &self.paths {
            println!("Delete subvolume: '{}'", text.display());
            writing.start.delete_subvolume(writing.path(text)?)?;
        }
        writing.filesystem.sync()?;
        Ok(ExitCode::SUCCESS)
    }
}
