//! `larder device`: the devices of a file system.

mod ready;
mod scan;
mod stats;
mod usage;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::Subcommand;

pub use scan::register;

use super::Outcome;
use crate::global::Global;

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

/// Fails if there is no block device at `path`.
fn expect_block_device(path: &Path) -> anyhow::Result<()> {
    let metadata = path.metadata().with_context(|| path.display().to_string())?;
    let is_block = metadata.file_type().is_block_device();
    ensure!(is_block, "not a block device: {}", path.display());
    Ok(())
}
