//! `larder streams`: streams of snapshots as objects.

mod list;
mod prune;
mod shown;
mod verify;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

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
