//! `larder device stats`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use larder_ioctl::{DeviceErrors, DeviceInfo};
use rustix::io::Errno;

use crate::device_errors::{Counted, of_image, of_mount};
use crate::global::Global;
use crate::mounted_device::mount_with;
use crate::outcome::{ERRORS_COUNTED, Outcome};
use crate::output::stdout;
use crate::print::{Cell, Fields, write_table, write_texts};
use crate::source::Source;

/// Show how often each device failed
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
    /// Show a table
    #[arg(short = 'T')]
    table: bool,
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system; or one of its devices, and then only that one is shown;
    /// or an image or a device that is not mounted
    #[arg(value_name = "PATH or DEVICE")]
    path: PathBuf,
}

/// A counter, by its name in results and by its title in a table.
struct Counter {
    name: &'static str,
    title: &'static str,
    count: fn(&DeviceErrors) -> u64,
}

const COUNTERS: [Counter; 5] = {
    const fn counter(
        name: &'static str,
        title: &'static str,
        count: fn(&DeviceErrors) -> u64,
    ) -> Counter {
        Counter { name, title, count }
    }
    [
        counter("write_io_errs", "Write errors", |errors| errors.writes),
        counter("read_io_errs", "Read errors", |errors| errors.reads),
        counter("flush_io_errs", "Flush errors", |errors| errors.flushes),
        counter("corruption_errs", "Corruption errors", |errors| errors.corruptions),
        counter("generation_errs", "Generation errors", |errors| errors.generations),
    ]
};

impl Stats {
    pub fn run(self, global: &Global) -> Outcome {
        let counted = self.counted().with_context(|| self.path.display().to_string())?;
        let mut out = stdout();
        if self.table {
            write_table(&mut out, &rows(&counted))?;
        } else if global.is_json() {
            let objects: Vec<_> = counted.iter().map(fields).collect();
            write_texts(&mut out, "device-stats", &objects)?;
        } else {
            counted.iter().try_for_each(|counted| write(&mut out, counted))?;
        }
        let has_errors = counted.iter().any(|(_, errors)| *errors != DeviceErrors::default());
        let fails = self.check && has_errors;
        Ok(if fails { ExitCode::from(ERRORS_COUNTED) } else { ExitCode::SUCCESS })
    }
}

impl Stats {
    /// The devices to show.
    fn counted(&self) -> anyhow::Result<Vec<Counted>> {
        if self.path.is_dir() {
            let directory = File::open(&self.path)?;
            return of_mount(&directory, self.reset).map_err(|error| {
                let errno = error.downcast_ref().and_then(Errno::from_io_error);
                match errno {
                    Some(Errno::NOTTY) => {
                        anyhow!("neither the kernel's btrfs nor a mount of larder")
                    }
                    _ => error,
                }
            });
        }
        let path = self.path.canonicalize()?;
        match mount_with(&path)? {
            Some((directory, device)) => {
                let errors = larder_ioctl::device_errors(directory, device.id, self.reset)?;
                Ok(vec![(device, errors)])
            }
            None => Ok(of_image(&self.source, &self.path, self.reset)?.1),
        }
    }
}

fn write(out: &mut impl Write, (device, errors): &Counted) -> io::Result<()> {
    let name = match &device.path[..] {
        b"" => format!("devid:{}", device.id),
        path => OsStr::from_bytes(path).display().to_string(),
    };
    COUNTERS.iter().try_for_each(|counter| {
        writeln!(out, "[{name}].{:<16} {}", counter.name, (counter.count)(errors))
    })
}

fn path_of(device: &DeviceInfo) -> String {
    OsStr::from_bytes(&device.path).display().to_string()
}

fn fields((device, errors): &Counted) -> Fields {
    let names = vec![("device", path_of(device)), ("devid", device.id.to_string())];
    let counters =
        COUNTERS.iter().map(|counter| (counter.name, (counter.count)(errors).to_string()));
    names.into_iter().chain(counters).collect()
}

fn rows(counted: &[Counted]) -> Vec<Vec<Cell>> {
    let left = |text: &str| Cell::Left(text.to_owned());
    let titles = ["Id", "Path"].into_iter().chain(COUNTERS.iter().map(|counter| counter.title));
    let titles: Vec<Cell> = titles.map(left).collect();
    let rules = titles.iter().map(|_| Cell::Rule).collect();
    let devices = counted.iter().map(|(device, errors)| {
        let names = [Cell::Right(device.id.to_string()), Cell::Left(path_of(device))];
        let counts = COUNTERS.iter().map(|counter| (counter.count)(errors).to_string());
        names.into_iter().chain(counts.map(Cell::Right)).collect()
    });
    [titles, rules].into_iter().chain(devices).collect()
}
