//! `larder filesystem sync`.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use rustix::io::Errno;

use crate::command::Outcome;
use crate::reason::NO_BTRFS;

/// Make all that was done in a file system that is mounted durable
///
/// sync(1) has it reach who serves a mount of larder's; this has it on the devices when it returns.
///
/// Example: larder filesystem sync ~/mnt
#[derive(Debug, Args)]
pub struct Sync {
    /// A directory of the file system
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

impl Sync {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let directory = File::open(&self.path).with_context(named)?;
        match larder_ioctl::sync(directory) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => {
                bail!("{}: {NO_BTRFS}", named());
            }
            synced => synced.with_context(named)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
