//! `larder scrub limit`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder_objects::parse_size;
use rustix::io::Errno;
use serde::Serialize;

use crate::command::scrub::place::{Kind, Place};
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Cell, write_json, write_table};
use crate::source::Source;
use crate::units::LongUnits;

/// Show or set how fast devices of a mounted file system are scrubbed
///
/// A limit is that of a device: of the scrub that goes on, and of those to come until the file
/// system is unmounted. What is not mounted gets one by 'larder scrub start --limit'.
///
/// Examples:
///   larder scrub limit ~/mnt
///   larder scrub limit -a -l 50M ~/mnt
///   larder scrub limit -d 1 -l 0 ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Limit {
    /// Set that of all devices
    #[arg(short, long, conflicts_with = "devid", requires = "limit")]
    all: bool,
    /// Set that of this device
    #[arg(short, long, value_name = "ID", requires = "limit")]
    devid: Option<u64>,
    /// Bytes in a second for each device, with K, M, G; 0 for no limit
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, or one of its devices
    #[arg(value_name = "PATH or DEVICE")]
    path: PathBuf,
}

/// A device and its limit.
#[derive(Serialize)]
struct Shown {
    devid: u64,
    path: String,
    /// 0 for none.
    limit: u64,
}

impl Limit {
    pub fn run(self, global: &Global) -> Outcome {
        let place = Place::find(&self.path, &self.source)?;
        if let Some(limit) = self.limit {
            ensure!(
                self.all || self.devid.is_some(),
                "--limit sets that of all devices with --all, or that of one with --devid"
            );
            let is_meant = |id: u64| self.devid.is_none_or(|only| only == id);
            let mut devices = place.devices.iter().filter(|it| is_meant(it.id)).peekable();
            devices.peek().context("there is no device of that id")?;
            return devices
                .try_for_each(|it| set(&place, it.id, limit))
                .map(|()| ExitCode::SUCCESS);
        }
        let shown = |device: &super::place::Listed| -> anyhow::Result<Shown> {
            let limit = get(&place, device.id)?;
            Ok(Shown { devid: device.id, path: device.name.clone(), limit })
        };
        let shown: Vec<Shown> = place.devices.iter().map(shown).collect::<Result<_, _>>()?;
        let mut out = stdout();
        if global.is_json() {
            write_json(&mut out, "scrub-limit", &shown)?;
            return Ok(ExitCode::SUCCESS);
        }
        println!("UUID: {}", place.uuid);
        let left = |text: &str| Cell::Left(text.to_owned());
        let right = |text: String| Cell::Right(text);
        let titles = vec![right("Id".into()), right("Limit".into()), left("Path")];
        let rules = titles.iter().map(|_| Cell::Rule).collect();
        let rows = shown.iter().map(|it| {
            let limit = if it.limit == 0 { "-".to_owned() } else { self.units.0.show(it.limit) };
            vec![right(it.devid.to_string()), right(limit), left(&it.path)]
        });
        write_table(&mut out, &[titles, rules].into_iter().chain(rows).collect::<Vec<_>>())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the kernel keeps the limit of a device.
fn kernels(place: &Place, id: u64) -> PathBuf {
    format!("/sys/fs/btrfs/{}/devinfo/{id}/scrub_speed_max", place.uuid).into()
}

fn get(place: &Place, id: u64) -> anyhow::Result<u64> {
    let Kind::Mounted(directory) = &place.kind else { bail!(not_mounted(place)) };
    match larder_ioctl::scrub_limit(directory, id) {
        Err(error) if is_of_kernel(&error) => {
            let path = kernels(place, id);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.trim().parse()?)
        }
        limit => Ok(limit?),
    }
}

fn set(place: &Place, id: u64, limit: u64) -> anyhow::Result<()> {
    let Kind::Mounted(directory) = &place.kind else { bail!(not_mounted(place)) };
    match larder_ioctl::set_scrub_limit(directory, id, limit) {
        Err(error) if is_of_kernel(&error) => {
            let path = kernels(place, id);
            fs::write(&path, limit.to_string()).with_context(|| path.display().to_string())
        }
        set => Ok(set?),
    }
}

/// The kernel's btrfs does not know the request.
fn is_of_kernel(error: &std::io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOTTY)
}

fn not_mounted(place: &Place) -> String {
    let path = place.path.display();
    format!("{path}: is not mounted; 'larder scrub start --limit' sets a limit for one scrub")
}
