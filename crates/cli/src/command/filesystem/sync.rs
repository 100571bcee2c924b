//! `larder filesystem sync`.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::outcome::Outcome;

/// Make all changes of a mounted file system durable
///
/// When this returns, everything is on the devices. sync(1) does the same on root's mounts (Linux
/// 6.18 or newer); on others it only makes the kernel hand dirty data to the server.
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
        larder_ioctl::sync(directory).with_context(named)?;
        Ok(ExitCode::SUCCESS)
    }
}
