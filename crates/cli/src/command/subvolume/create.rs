//! `larder subvolume create`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::command::Outcome;
use crate::source::PathSource;

/// Make empty subvolumes
///
/// Example: larder subvolume create disk.img:/home
#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    source: PathSource,
    /// The subvolumes
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

impl Create {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(&self.paths[0])?;
        for text in &self.paths {
            writing.start.create_subvolume(writing.path(text)?)?;
            println!("Create subvolume '{}'", text.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
