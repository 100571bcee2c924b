//! `larder streams`: streams of snapshots as objects.

mod list;
mod prune;
mod verify;

use clap::Subcommand;
use larder_objects::streams::{Catalogue, Stream};
use serde::Serialize;

use super::Outcome;
use crate::global::Global;
use crate::print::Name;

/// Look after the streams that larder send --to has sent to a URL
///
/// A stream is named by its id, or by the name or the uuid of its snapshot.
#[derive(Debug, Subcommand)]
#[command(verbatim_doc_comment)]
pub enum Streams {
    List(list::List),
    Prune(prune::Prune),
    Verify(verify::Verify),
}

impl Streams {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::List(command) => command.run(global),
            Self::Prune(command) => command.run(global),
            Self::Verify(command) => command.run(global),
        }
    }
}

/// A stream as JSON names it.
#[derive(Serialize)]
struct Named {
    id: String,
    name: Name,
}

impl Named {
    fn of(stream: &Stream) -> Self {
        let name = Name::of_bytes(stream.name.as_bytes());
        Self { id: stream.id.to_string(), name }
    }
}

/// A stream as text names it.
fn shown(stream: &Stream) -> String {
    format!("{} ({})", stream.name, stream.id)
}

fn uuid(bytes: [u8; 16]) -> String {
    larder::Uuid::from_bytes(bytes).to_string()
}

/// What is wrong with a stream that needs snapshots of which there is no stream.
fn gaps(catalogue: &Catalogue, stream: &Stream) -> Vec<String> {
    let missing = catalogue.gaps(stream).map(|origin| {
        let uuid = uuid(origin.uuid);
        format!("it builds on the snapshot {uuid}, of which there is no stream here")
    });
    missing.collect()
}
