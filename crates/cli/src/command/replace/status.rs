//! `larder replace status`.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use larder::ReplaceState;
use larder_ioctl::ReplaceProgress;
use serde_json::json;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::Source;
use crate::target::Target;
use crate::time_zone::SHOWN;

/// How often it looks at one that goes on.
const LOOKS: Duration = Duration::from_secs(1);

/// Show how far a replace is, or how the last one ended
///
/// While it goes on it is shown again and again, until it ends.
///
/// Example: larder replace status -1 ~/mnt
#[derive(Debug, Args)]
pub struct Status {
    /// Show it once
    #[arg(short = '1')]
    once: bool,
    #[command(flatten)]
    source: Source,
    /// An image of the file system, or a directory of one that is mounted, by larder or by the
    /// kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Status {
    pub fn run(self, global: &Global) -> Outcome {
        let mut out = stdout();
        let Some(path) = self.source.mounted_directory(&self.image)? else {
            let filesystem = self.source.open(&Target::parse(&self.image).image)?;
            let status = filesystem.replace_status()?;
            let progress = ReplaceProgress {
                state: state_number(status.state),
                permille: status.permille,
                started: status.started,
                stopped: status.stopped,
                write_errors: status.write_errors,
                read_errors: status.read_errors,
            };
            show(&mut out, global, &progress)?;
            return Ok(ExitCode::SUCCESS);
        };
        let directory = File::open(path)?;
        loop {
            let progress = larder_ioctl::replace_progress(&directory)?;
            show(&mut out, global, &progress)?;
            if self.once || global.is_json() || progress.state != larder_ioctl::REPLACE_STARTED {
                return Ok(ExitCode::SUCCESS);
            }
            out.flush()?;
            thread::sleep(LOOKS);
        }
    }
}

fn show(out: &mut impl Write, global: &Global, progress: &ReplaceProgress) -> anyhow::Result<()> {
    if global.is_json() {
        let state = WORDS.get(progress.state as usize).copied().unwrap_or("unknown");
        let fields = json!({
            "state": state,
            "percent": progress.permille as f64 / 10.0,
            "started": progress.started,
            "stopped": progress.stopped,
            "write-errors": progress.write_errors,
            "uncorrectable-read-errors": progress.read_errors,
        });
        return Ok(write_json(out, "replace-status", &fields)?);
    }
    let percent = format!("{}.{}%", progress.permille / 10, progress.permille % 10);
    let (started, stopped) = (day_and_time(progress.started), day_and_time(progress.stopped));
    let errors =
        format!("{} write errs, {} uncorr. read errs", progress.write_errors, progress.read_errors);
    match progress.state {
        1 => writeln!(out, "{percent} done, {errors}")?,
        2 => writeln!(out, "Started on {started}, finished on {stopped}, {errors}")?,
        3 => writeln!(out, "Started on {started}, canceled on {stopped} at {percent}, {errors}")?,
        4 => writeln!(out, "Started on {started}, suspended on {stopped} at {percent}, {errors}")?,
        _ => writeln!(out, "Never started")?,
    }
    Ok(())
}

/// States by their numbers.
const WORDS: [&str; 5] = ["never-started", "started", "finished", "canceled", "suspended"];

fn state_number(state: ReplaceState) -> u64 {
    match state {
        ReplaceState::NeverStarted => 0,
        ReplaceState::Started => 1,
        ReplaceState::Finished => 2,
        ReplaceState::Cancelled => 3,
        ReplaceState::Suspended => 4,
    }
}

/// A time as btrfs-progs shows it here.
fn day_and_time(seconds: u64) -> String {
    let time = Timestamp::from_second(seconds.cast_signed()).unwrap_or_default();
    time.to_zoned(SHOWN.clone()).strftime("%e.%b %T").to_string()
}
