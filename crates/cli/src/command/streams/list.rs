//! `larder streams list`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::Address;
use larder_objects::streams::{Catalogue, Stream, Unfinished};
use serde::Serialize;

use super::shown::uuid;
use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::unsigned_local_time;
use crate::print::{Cell, Name, write_json, write_table};
use crate::units::Units;

/// List the streams at a URL, oldest first
///
/// The parent is the snapshot that a stream is the difference from: its name, or its uuid if there
/// is no stream of it. Sends that were interrupted, or are still at work, stand below.
///
/// Examples:
///   larder streams list s3://bucket/backups
///   larder --format json streams list file:///srv/backups
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct List {
    #[command(flatten)]
    units: Units,
    /// Where the streams are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

/// Sizes are in bytes, times in seconds since 1970.
#[derive(Serialize)]
struct Object {
    streams: Vec<Listed>,
    unfinished: Vec<Interrupted>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Listed {
    id: String,
    name: Name,
    time: u64,
    size: u64,
    parts: u64,
    uuid: String,
    ctransid: u64,
    parent_uuid: Option<String>,
    clone_source_uuids: Vec<String>,
    version: u32,
    compressed: bool,
}

#[derive(Serialize)]
struct Interrupted {
    id: String,
    name: Name,
    time: u64,
    uuid: String,
}

impl List {
    pub fn run(self, global: &Global) -> Outcome {
        let catalogue = Catalogue::load(&*store(&self.address)?)?;
        let mut out = stdout();
        if global.is_json() {
            let object = Object {
                streams: catalogue.streams.iter().map(Listed::of).collect(),
                unfinished: catalogue.unfinished.iter().map(Interrupted::of).collect(),
            };
            write_json(&mut out, "streams-list", &object)?;
            return Ok(ExitCode::SUCCESS);
        }
        let title = |text: &str| Cell::Left(text.to_owned());
        let mut rows = vec![vec![
            title("Id"),
            title("Sent"),
            Cell::Right("Size".to_owned()),
            title("Name"),
            title("Parent"),
        ]];
        let row = |stream: &Stream| {
            vec![
                Cell::Left(stream.id.to_string()),
                Cell::Left(unsigned_local_time(stream.time)),
                Cell::Right(self.units.show(stream.len_bytes)),
                Cell::Left(stream.name.to_string()),
                Cell::Left(parent(&catalogue, stream)),
            ]
        };
        rows.extend(catalogue.streams.iter().map(row));
        write_table(&mut out, &rows)?;
        for unfinished in &catalogue.unfinished {
            let Unfinished { id, name, time, .. } = unfinished;
            writeln!(out, "{id} {} unfinished: {name}", unsigned_local_time(*time))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parent(catalogue: &Catalogue, stream: &Stream) -> String {
    let Some(parent) = stream.description.parent else { return "-".to_owned() };
    let maker = catalogue.maker(&parent.uuid);
    maker.map_or_else(|| uuid(parent.uuid), |maker| maker.name.to_string())
}

impl Listed {
    fn of(stream: &Stream) -> Self {
        let description = &stream.description;
        Self {
            id: stream.id.to_string(),
            name: Name::of_bytes(stream.name.as_bytes()),
            time: stream.time,
            size: stream.len_bytes,
            parts: stream.parts(),
            uuid: uuid(description.snapshot.uuid),
            ctransid: description.snapshot.ctransid,
            parent_uuid: description.parent.map(|parent| uuid(parent.uuid)),
            clone_source_uuids: description.clone_sources.iter().map(|it| uuid(it.uuid)).collect(),
            version: description.version,
            compressed: description.is_compressed,
        }
    }
}

impl Interrupted {
    fn of(unfinished: &Unfinished) -> Self {
        Self {
            id: unfinished.id.to_string(),
            name: Name::of_bytes(unfinished.name.as_bytes()),
            time: unfinished.time,
            uuid: uuid(unfinished.description.snapshot.uuid),
        }
    }
}
