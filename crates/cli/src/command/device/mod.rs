//! `larder device`: the devices of a file system.

mod stats;

use clap::Subcommand;

use super::Outcome;

/// Look at the devices of a file system
#[derive(Debug, Subcommand)]
pub enum Device {
    Stats(stats::Stats),
}

impl Device {
    pub fn run(self) -> Outcome {
        match self {
            Self::Stats(command) => command.run(),
        }
    }
}
