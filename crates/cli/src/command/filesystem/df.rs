//! `larder filesystem df`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{kind_name, profile_name};
use crate::command::Outcome;
use crate::source::Source;
use crate::units::Units;

/// Show what space is set aside for and how much of it is used
///
/// Of a mounted file system the kernel also shows a global reserve, which is in memory only.
///
/// Example: larder filesystem df disk.img
#[derive(Debug, Args)]
pub struct Df {
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

impl Df {
    pub fn run(self) -> Outcome {
        let mut out = io::stdout().lock();
        for space in self.source.open(&self.image)?.space()? {
            writeln!(
                out,
                "{}, {}: total={}, used={}",
                kind_name(space.kind),
                profile_name(space.profile),
                self.units.show(space.total_bytes),
                self.units.show(space.used_bytes),
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
