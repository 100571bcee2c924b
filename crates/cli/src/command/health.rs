//! `larder health`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use larder_ioctl::{DeviceErrors, Health as State};

use super::Outcome;
use crate::output::stdout;
use crate::print::local_time;

/// Show the health of a mount of larder: last commit, errors, since when and why it is read-only
///
/// The exit code is 1 if an error made the file system read-only, and 0 otherwise. Errors of
/// devices are also told by `larder device stats`, which can set them to zero.
///
/// Example: larder health ~/mnt
#[derive(Debug, Args)]
pub struct Health {
    /// A directory of the file system
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

impl Health {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let directory = File::open(&self.path).with_context(named)?;
        let Some(state) = larder_ioctl::health(&directory).with_context(named)? else {
            bail!("{}: larder has mounted nothing here", named());
        };
        let mut out = stdout();
        write_state(&mut out, &state)?;
        write_devices(&mut out, &directory).with_context(named)?;
        let is_well = state.made_read_only.is_none();
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn write_state(out: &mut impl Write, state: &State) -> io::Result<()> {
    let State { generation, committed_at, made_read_only, healed_copies } = state;
    let when = committed_at.map_or_else(|| "before it was mounted".to_owned(), text_of);
    writeln!(out, "Last commit:     generation {generation}, {when}")?;
    match made_read_only {
        None => writeln!(out, "State:           well")?,
        Some((since, reason)) => {
            writeln!(out, "State:           read-only since {}: {reason}", text_of(*since))?;
        }
    }
    writeln!(out, "Healed copies:   {healed_copies}")
}

fn write_devices(out: &mut impl Write, directory: impl AsFd) -> io::Result<()> {
    for device in larder_ioctl::devices(&directory)? {
        let name = match &device.path[..] {
            b"" => "missing".to_owned(),
            path => OsStr::from_bytes(path).display().to_string(),
        };
        let errors = larder_ioctl::device_errors(&directory, device.id, false)?;
        let DeviceErrors { writes, reads, flushes, corruptions, generations } = errors;
        let text = if errors == DeviceErrors::default() {
            "no errors".to_owned()
        } else {
            format!(
                "errors: {writes} write, {reads} read, {flushes} flush, {corruptions} corruption, \
                 {generations} generation"
            )
        };
        writeln!(out, "Device {:<9} {name}: {text}", format!("{}:", device.id))?;
    }
    Ok(())
}

fn text_of(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    local_time(since.as_secs() as i64)
}
