//! `larder scrub status`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::command::scrub::place::Place;
use crate::command::scrub::record::{Record, read};
use crate::command::scrub::shown::{State, Style, fields, together, write_counters, write_times};
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::Source;
use crate::units::LongUnits;

/// Show how far a scrub is, or what the last one met
///
/// Example: larder scrub status ~/mnt
#[derive(Debug, Args)]
pub struct Status {
    /// Show that of each device
    #[arg(short = 'd')]
    per_device: bool,
    /// Show all counters
    #[arg(short = 'R')]
    all_counters: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    source: Source,
    /// A directory of a mounted file system, one of its devices, or an image
    #[arg(value_name = "PATH or DEVICE")]
    path: PathBuf,
}

impl Status {
    pub fn run(self, global: &Global) -> Outcome {
        let place = Place::find(&self.path, &self.source)?;
        let is_running = place.is_scrubbed()?;
        let known = read(place.uuid)?;
        let record = |id: u64| {
            let found = known.iter().find(|record| record.devid == id);
            found.copied().unwrap_or_else(|| Record::new(id))
        };
        let records: Vec<Record> = place.devices.iter().map(|device| record(device.id)).collect();
        let mut out = stdout();
        if global.is_json() {
            let devices = place.devices.iter().zip(&records).map(|(device, record)| {
                let state = State::of(record, is_running);
                fields(record, state, &device.name, device.allocated_bytes)
            });
            let devices: Vec<Value> = devices.collect();
            let all = json!({ "uuid": place.uuid.to_string(), "devices": devices });
            write_json(&mut out, "scrub-status", &all)?;
            return Ok(ExitCode::SUCCESS);
        }
        let style = Style { raw: self.all_counters, units: self.units.0 };
        writeln!(out, "UUID:             {}", place.uuid)?;
        if self.per_device {
            for (device, record) in place.devices.iter().zip(&records) {
                let state = State::of(record, is_running);
                let word = match (record.started, state) {
                    (0, _) => "",
                    (_, State::Running) => "status",
                    _ => "history",
                };
                writeln!(out, "\nScrub device {} (id {}) {word}", device.name, device.id)?;
                write_times(&mut out, record, state)?;
                if record.started > 0 {
                    write_counters(&mut out, record, state, device.allocated_bytes, style)?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let all = together(&records);
        let state = State::of(&all, is_running);
        write_times(&mut out, &all, state)?;
        write_counters(&mut out, &all, state, place.used_bytes(&self.source)?, style)?;
        Ok(ExitCode::SUCCESS)
    }
}
