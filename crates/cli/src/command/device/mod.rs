//! `larder device`: the devices of a file system.

mod stats;
mod usage;

use clap::Subcommand;

use super::Outcome;
use crate::global::Global;

/// Look at the devices of a file system
#[derive(Debug, Subcommand)]
pub enum Device {
    Stats(stats::Stats),
    Usage(usage::Usage),
}

impl Device {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Stats(command) => command.run(global),
            Self::Usage(command) => command.run(global),
        }
    }
}
