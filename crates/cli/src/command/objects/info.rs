//! `larder objects info`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::Address;
use serde::Serialize;

use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::unsigned_local_time;
use crate::print::write_json;
use crate::units::Units;

/// Show the space that objects take, and their writer
///
/// Live is what the last state needs. Kept states may need more.
///
/// Example: larder objects info s3://bucket/photos
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Info {
    #[command(flatten)]
    units: Units,
    /// Where the file system is
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

/// Sizes are in bytes, times in seconds.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    size: u64,
    state: u64,
    state_time: u64,
    states: usize,
    keep: String,
    delete_after: u64,
    epoch: u32,
    writer: String,
    closed: bool,
    segments: u64,
    segments_size: u64,
    segments_live: u64,
    maps: u64,
    maps_size: u64,
    maps_live: u64,
    doomed: u64,
    origin: Option<String>,
    clones: Vec<Clone>,
    leases: Vec<Lease>,
}

/// A clone, and the state that it began with.
#[derive(Serialize)]
struct Clone {
    path: String,
    state: u64,
}

/// Somebody reads states, all from the first on if there is no last one. They stay until the lease
/// ends, by the clock of the store, and readers that go on make another one before.
#[derive(Serialize)]
struct Lease {
    reader: String,
    first: u64,
    last: Option<u64>,
    until: u64,
}

impl Info {
    pub fn run(self, global: &Global) -> Outcome {
        let info = larder_objects::info(&*store(&self.address)?)?;
        let clones = info.clones.into_iter();
        let leases = info.leases.into_iter().map(|lease| Lease {
            reader: lease.reader,
            first: lease.first,
            last: lease.last,
            until: lease.until,
        });
        let object = Object {
            size: info.len_bytes,
            state: info.state.number,
            state_time: info.state.time,
            states: info.states.len(),
            keep: info.policy.to_string(),
            delete_after: info.delete_after,
            epoch: info.epoch,
            writer: info.writer,
            closed: info.is_closed,
            segments: info.segments.0,
            segments_size: info.segments.1,
            segments_live: info.segments.2,
            maps: info.maps.0,
            maps_size: info.maps.1,
            maps_live: info.maps.2,
            doomed: info.doomed,
            origin: info.origin,
            clones: clones.map(|(path, state)| Clone { path, state }).collect(),
            leases: leases.collect(),
        };
        if global.is_json() {
            write_json(&mut stdout(), "objects-info", &object)?;
        } else {
            self.print(&object)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, object: &Object) -> std::io::Result<()> {
        let mut out = stdout();
        let mut line = |what: &str, value: String| writeln!(out, "{what:<20}{value}");
        let size = |bytes| self.units.show(bytes);
        line("Size:", size(object.size))?;
        line("State:", format!("{} of {}", object.state, unsigned_local_time(object.state_time)))?;
        line("Kept states:", format!("{} ({})", object.states, object.keep))?;
        let end = if object.closed { "closed" } else { "open, or ended by a crash" };
        line("Written by:", format!("{}, epoch {}: {end}", object.writer, object.epoch))?;
        let objects =
            |count, bytes, live| format!("{count}, {} of which {} live", size(bytes), size(live));
        line("Segments:", objects(object.segments, object.segments_size, object.segments_live))?;
        line("Maps:", objects(object.maps, object.maps_size, object.maps_live))?;
        line("To be deleted:", format!("{}, after {} s", object.doomed, object.delete_after))?;
        if let Some(origin) = &object.origin {
            line("Clone of:", origin.clone())?;
        }
        for Clone { path, state } in &object.clones {
            line("Clone:", format!("{path}, of state {state}"))?;
        }
        for Lease { reader, first, last, until } in &object.leases {
            let states = match last {
                Some(last) if last == first => format!("state {first}"),
                Some(last) => format!("states {first} to {last}"),
                None => format!("states from {first} on"),
            };
            line(
                "Lease:",
                format!("{reader}, on {states}, until {}", unsigned_local_time(*until)),
            )?;
        }
        Ok(())
    }
}
