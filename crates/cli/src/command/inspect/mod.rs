//! `larder inspect`: what is on disk, as text.

mod dump_super;

use clap::Subcommand;

use super::Outcome;

/// Look at what is on disk
#[derive(Debug, Subcommand)]
pub enum Inspect {
    DumpSuper(dump_super::DumpSuper),
}

impl Inspect {
    pub fn run(self) -> Outcome {
        match self {
            Self::DumpSuper(command) => command.run(),
        }
    }
}
