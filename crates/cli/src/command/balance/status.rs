//! `larder balance status`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::BalanceState;
use larder_ioctl::BalanceRun;
use larder_ioctl::abi::BalanceArgs;
use serde_json::json;

use super::place::Place;
use super::shown::{fields, write_filters};
use crate::global::{Global, Verbosity};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::Source;

/// The exit code if a balance goes on or pauses.
const THERE_IS_ONE: u8 = 1;
/// The exit code of a failure.
const FAILED: u8 = 2;

/// Show how far a balance is that goes on or pauses
///
/// Exit codes:
///   0  there is none
///   1  one goes on, or pauses
///   2  it cannot be seen
///
/// Example: larder balance status ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Status {
    /// Show what it moves
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, of larder or of the kernel, or an image
    #[arg(value_name = "PATH or IMAGE")]
    path: OsString,
}

impl Status {
    pub fn run(self, global: &Global) -> Outcome {
        let path = self.path.display().to_string();
        let found = match self.find() {
            Ok(found) => found,
            Err(error) => {
                eprintln!("ERROR: balance status on '{path}' failed: {error:#}");
                return Ok(ExitCode::from(FAILED));
            }
        };
        let mut out = stdout();
        let Some(run) = found else {
            if global.is_json() {
                write_json(&mut out, "balance-status", &json!({ "state": "none" }))?;
            } else {
                writeln!(out, "No balance found on '{path}'")?;
            }
            return Ok(ExitCode::SUCCESS);
        };
        let BalanceRun { expected, considered, completed, .. } = run;
        if global.is_json() {
            let state = match run {
                BalanceRun { is_running: false, .. } => "paused",
                BalanceRun { is_cancel_requested: true, .. } => "cancel-requested",
                BalanceRun { is_pause_requested: true, .. } => "pause-requested",
                _ => "running",
            };
            let all = json!({
                "state": state,
                "expected": expected,
                "considered": considered,
                "completed": completed,
                "filters": fields(&run.item),
            });
            write_json(&mut out, "balance-status", &all)?;
            return Ok(ExitCode::from(THERE_IS_ONE));
        }
        match run {
            BalanceRun { is_running: false, .. } => writeln!(out, "Balance on '{path}' is paused")?,
            BalanceRun { is_cancel_requested: true, .. } => {
                writeln!(out, "Balance on '{path}' is running, cancel requested")?;
            }
            BalanceRun { is_pause_requested: true, .. } => {
                writeln!(out, "Balance on '{path}' is running, pause requested")?;
            }
            _ => writeln!(out, "Balance on '{path}' is running")?,
        }
        let left = match expected {
            0 => f64::NAN,
            _ => 100.0 * (1.0 - completed as f64 / expected as f64),
        };
        writeln!(
            out,
            "{completed} out of about {expected} chunks balanced ({considered} considered), \
             {left:3.0}% left"
        )?;
        if self.verbose || global.verbosity() > Verbosity::Default {
            write_filters(&mut out, &run.item, BalanceArgs::of(&run).state)?;
        }
        Ok(ExitCode::from(THERE_IS_ONE))
    }

    fn find(&self) -> anyhow::Result<Option<BalanceRun>> {
        let filesystem = match Place::open_to_look(&self.source, &self.path)? {
            Place::Mounted(directory) => {
                return larder_ioctl::balance_status(directory).context("it does not answer");
            }
            Place::Image(filesystem) => filesystem,
        };
        let status = filesystem.balance_status()?;
        Ok(status.map(|status| BalanceRun {
            item: status.item,
            expected: status.progress.expected,
            considered: status.progress.considered,
            completed: status.progress.completed,
            is_running: status.state != BalanceState::Paused,
            is_pause_requested: false,
            is_cancel_requested: false,
        }))
    }
}
