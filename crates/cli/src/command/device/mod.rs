//! `larder device`: the devices of a file system.

mod add;
mod block_device;
pub mod on;
mod ready;
mod remove;
mod scan;
mod stats;
mod usage;

use clap::Subcommand;

pub use scan::register;

use super::replace::Replace;
use crate::global::Global;
use crate::outcome::Outcome;

/// Look at the devices of a file system, and change them
#[derive(Debug, Subcommand)]
pub enum Device {
    Add(add::Add),
    /// Remove devices from a file system: the older name of remove
    ///
    /// Example: larder device delete second.img disk.img
    Delete(remove::Remove),
    Ready(ready::Ready),
    Remove(remove::Remove),
    /// Replace a device of a file system by another: the same as 'larder replace'
    #[command(subcommand)]
    Replace(Replace),
    Scan(scan::Scan),
    Stats(stats::Stats),
    Usage(usage::Usage),
}

impl Device {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Add(command) => command.run(),
            Self::Delete(command) | Self::Remove(command) => command.run(),
            Self::Ready(command) => command.run(),
            Self::Replace(command) => command.run(global),
            Self::Scan(command) => command.run(global),
            Self::Stats(command) => command.run(global),
            Self::Usage(command) => command.run(global),
        }
    }
}
