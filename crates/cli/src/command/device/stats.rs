//! `larder device stats`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use larder_ioctl::{DeviceErrors, DeviceInfo};
use rustix::io::Errno;

use crate::command::Outcome;
use crate::output::stdout;

/// Show how often each device of a mounted file system failed
///
/// Failed writes, reads and flushes, and reads with a wrong checksum, structure or generation. The
/// counters are kept in the file system. With -c the exit code is 64 if any is not zero.
///
/// Example: larder device stats ~/mnt
#[derive(Debug, Args)]
pub struct Stats {
    /// Fail unless all counters are zero
    #[arg(short, long)]
    check: bool,
    /// Set the counters to zero, and show what they were
    #[arg(short = 'z', long)]
    reset: bool,
    /// A directory of the file system
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// The exit code of `--check`: the bit that btrfs-progs sets.
const ERRORS_COUNTED: u8 = 64;

impl Stats {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let directory = File::open(&self.path).with_context(named)?;
        let devices = match larder_ioctl::devices(&directory) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => {
                bail!("{}: neither the kernel's btrfs nor a mount of larder", named());
            }
            devices => devices.with_context(named)?,
        };
        let mut has_errors = false;
        let mut out = stdout();
        for device in devices {
            let errors = larder_ioctl::device_errors(&directory, device.id, self.reset);
            let errors = errors.with_context(|| format!("{}: device {}", named(), device.id))?;
            has_errors |= errors != DeviceErrors::default();
            write(&mut out, &device, &errors)?;
        }
        let fails = self.check && has_errors;
        Ok(if fails { ExitCode::from(ERRORS_COUNTED) } else { ExitCode::SUCCESS })
    }
}

fn write(out: &mut impl Write, device: &DeviceInfo, errors: &DeviceErrors) -> io::Result<()> {
    let name = match &device.path[..] {
        b"" => format!("devid:{}", device.id),
        path => OsStr::from_bytes(path).display().to_string(),
    };
    let counters = [
        ("write_io_errs", errors.writes),
        ("read_io_errs", errors.reads),
        ("flush_io_errs", errors.flushes),
        ("corruption_errs", errors.corruptions),
        ("generation_errs", errors.generations),
    ];
    counters.iter().try_for_each(|(what, count)| writeln!(out, "[{name}].{what:<16} {count}"))
}
