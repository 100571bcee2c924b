//! The operands of commands that show the space of file systems.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use larder::Overview;

use crate::command::Outcome;
use crate::output::stdout;
use crate::source::Source;
use crate::units::Units;

/// File systems to show, and the units of their sizes.
#[derive(Debug, Args)]
pub struct Shown {
    #[command(flatten)]
    pub units: Units,
    #[command(flatten)]
    source: Source,
    /// Image files or block devices, each with a file system of its own, or directories of file
    /// systems that are mounted
    #[arg(required = true, value_name = "IMAGE[:/PATH] or PATH")]
    images: Vec<PathBuf>,
}

impl Shown {
    /// Calls `show` for each file system, with an empty line between two.
    pub fn each(&self, mut show: impl FnMut(&dyn Overview) -> Result<()>) -> Outcome {
        for (number, image) in self.images.iter().enumerate() {
            let filesystem = self.source.overview(image.as_os_str())?;
            if number > 0 {
                writeln!(stdout())?;
            }
            show(&*filesystem)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
