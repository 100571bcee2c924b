//! `larder subvolume delete`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::command::Outcome;
use crate::source::PathSource;

/// Delete subvolumes and snapshots with all that is in them
///
/// Example: larder subvolume delete disk.img:/snapshots/monday
#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    source: PathSource,
    /// The subvolumes
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

impl Delete {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(&self.paths[0])?;
        for text in &self.paths {
            println!("Delete subvolume: '{}'", text.display());
            writing.start.delete_subvolume(writing.path(text)?)?;
        }
        writing.filesystem.sync()?;
        Ok(ExitCode::SUCCESS)
    }
}
