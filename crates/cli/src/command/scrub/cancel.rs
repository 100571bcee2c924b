//! `larder scrub cancel`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::scrub::place::{Kind, Place};
use crate::command::scrub::record::Claim;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::source::Source;

/// How often to look whether the scrub has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// The exit code if there is no scrub.
const NOT_RUNNING: u8 = 2;

/// Cancel a scrub that goes on; it can be resumed
///
/// Exit codes:
///   0  the scrub has ended
///   1  it cannot be cancelled
///   2  there is none
///
/// Example: larder scrub cancel ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Cancel {
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, one of its devices, or an image
    #[arg(value_name = "PATH or DEVICE")]
    path: PathBuf,
}

impl Cancel {
    pub fn run(self, global: &Global) -> Outcome {
        let place = Place::find(&self.path, &self.source)?;
        let is_cancelled = match &place.kind {
            Kind::Mounted(directory) => larder_ioctl::cancel_scrub(directory)?,
            Kind::Image => {
                let holder = || Claim::holder(place.uuid).and_then(Pid::from_raw);
                let first = holder();
                if let Some(process) = first {
                    kill_process(process, Signal::TERM)?;
                }
                while first.is_some() && holder() == first {
                    thread::sleep(LOOKS);
                }
                first.is_some()
            }
        };
        if !is_cancelled {
            eprintln!("ERROR: scrub cancel failed on {}: not running", self.path.display());
            return Ok(ExitCode::from(NOT_RUNNING));
        }
        if !global.is_quiet() {
            println!("scrub cancelled");
        }
        Ok(ExitCode::SUCCESS)
    }
}
