//! The command tree. Names follow btrfs-progs, and unambiguous prefixes are accepted.

mod inspect;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use larder_device::{Access, Device, FileDevice};
use larder_volume::{OpenOptions, Volume};

/// What every command comes to: an exit code, or an error for standard error.
pub type Outcome = anyhow::Result<ExitCode>;

/// Read, make and check btrfs file systems without the kernel and without root.
///
/// Exit codes: 0 success, 1 failure (for check: damage was found), 2 the command line is wrong
/// (for check: it could not run).
#[derive(Debug, Parser)]
#[command(name = "larder", version, infer_subcommands = true, infer_long_args = true)]
pub struct Larder {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand, alias = "inspect-internal")]
    Inspect(inspect::Inspect),
}

impl Larder {
    /// Does what the command line asks for.
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Inspect(command) => command.run(),
        }
    }
}

/// Opens the file system on `paths` for reading.
fn open_volume(paths: &[PathBuf]) -> anyhow::Result<Volume> {
    let devices = paths
        .iter()
        .map(|path| Ok(Arc::new(FileDevice::open(path, Access::ReadOnly)?) as Arc<dyn Device>))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Volume::open(devices, &OpenOptions::default())?)
}
