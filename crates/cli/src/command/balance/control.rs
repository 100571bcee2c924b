//! `larder balance pause` and `cancel`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::place::Place;
use crate::outcome::Outcome;
use crate::source::Source;

/// The exit code if there is no balance.
const NOT_RUNNING: u8 = 2;

/// Pause a balance that goes on; 'balance resume' goes on with it
///
/// One of an image pauses when its command gets Ctrl-C.
///
/// Exit codes:
///   0  it pauses
///   1  it cannot be paused
///   2  none goes on
///
/// Example: larder balance pause ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Pause {
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, of larder or of the kernel, or an image
    #[arg(value_name = "PATH or IMAGE")]
    path: OsString,
}

/// End a balance that goes on or pauses; what has moved stays where it is
///
/// Exit codes:
///   0  it has ended
///   1  it cannot be ended
///   2  there is none
///
/// Example: larder balance cancel ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Cancel {
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, of larder or of the kernel, or an image
    #[arg(value_name = "PATH or IMAGE")]
    path: OsString,
}

impl Pause {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let is_paused = match Place::open_to_look(&self.source, &self.path).with_context(named)? {
            // Only the process that has the image open can pause its balance.
            Place::Image(_) => false,
            Place::Mounted(directory) => {
                larder_ioctl::pause_balance(directory).with_context(named)?
            }
        };
        Ok(told(is_paused, "pause", &self.path, "Not running"))
    }
}

impl Cancel {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let is_cancelled = match Place::open(&self.source, &self.path).with_context(named)? {
            Place::Image(filesystem) => {
                let is_cancelled = filesystem.cancel_balance().with_context(named)?;
                filesystem.close().with_context(named)?;
                is_cancelled
            }
            Place::Mounted(directory) => {
                larder_ioctl::cancel_balance(directory).with_context(named)?
            }
        };
        Ok(told(is_cancelled, "cancel", &self.path, "Not in progress"))
    }
}

fn told(is_done: bool, verb: &str, path: &OsString, otherwise: &str) -> ExitCode {
    if is_done {
        return ExitCode::SUCCESS;
    }
    eprintln!("ERROR: balance {verb} on '{}' failed: {otherwise}", path.display());
    ExitCode::from(NOT_RUNNING)
}
