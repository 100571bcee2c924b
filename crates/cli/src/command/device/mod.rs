//! `larder device`: the devices of a file system.

mod block_device;
mod ready;
mod scan;
mod stats;
mod usage;

use clap::Subcommand;

pub use scan::register;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look at the devices of a file system
#[derive(Debug, Subcommand)]
pub enum Device {
    Ready(ready::Ready),
    Scan(scan::Scan),
    Stats(stats::Stats),
    Usage(usage::Usage),
}

impl Device {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Ready(command) => command.run(),
            Self::Scan(command) => command.run(global),
            Self::Stats(command) => command.run(global),
            Self::Usage(command) => command.run(global),
        }
    }
}
