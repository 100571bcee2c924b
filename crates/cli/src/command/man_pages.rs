//! `larder man-pages`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};

use crate::manual;
use crate::outcome::Outcome;

/// Write the man pages of all commands into a directory
///
/// There is a page for each: larder.1, larder-ls.1, larder-subvolume-list.1 and so on.
///
/// Examples:
///   larder man-pages ~/.local/share/man/man1
///   larder man-pages pages && man -l pages/larder-ls.1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ManPages {
    /// The directory; it is made if it is missing
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl ManPages {
    /// `larder` is everything that the command line can be.
    pub fn run(&self, larder: Command) -> Outcome {
        let shown = || self.directory.display().to_string();
        std::fs::create_dir_all(&self.directory).with_context(shown)?;
        for (name, page) in manual::pages(larder) {
            let path = self.directory.join(name);
            std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
