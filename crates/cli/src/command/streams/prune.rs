//! `larder streams prune`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::streams::{Catalogue, Pruning, prune};
use larder_objects::{Address, parse_seconds};
use serde::Serialize;

use super::shown::{Named, shown};
use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::progress::Progress;

/// Remove streams, and what interrupted sends have left
///
/// A stream that another one builds on stays as long as that one: it is an error to name it alone,
/// and --keep keeps it. Parts that no stream needs are deleted, and those of interrupted sends a
/// week after the last attempt. Without a stream and --keep, only such parts are.
///
/// Examples:
///   larder streams prune --keep 7 s3://bucket/backups
///   larder streams prune --dependents s3://bucket/backups monday
///   larder streams prune file:///srv/backups
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Prune {
    /// Keep the newest streams, so many, with all that they build on, and remove the others
    #[arg(long, value_name = "N", conflicts_with = "streams")]
    keep: Option<usize>,
    /// Remove also the streams that build on the named ones
    #[arg(long, requires = "streams")]
    dependents: bool,
    /// Delete the parts of interrupted sends so long after the last attempt
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_seconds)]
    delete_after: u64,
    /// Where the streams are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
    /// The streams to remove
    #[arg(value_name = "STREAM")]
    streams: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    removed: Vec<Named>,
    needed: Vec<Named>,
    interrupted_sends: u64,
    deleted_objects: u64,
}

impl Prune {
    pub fn run(self, global: &Global) -> Outcome {
        let store = store(&self.address)?;
        let pruning = match self.keep {
            Some(keep) => Pruning::AllBut(keep),
            None if self.streams.is_empty() => Pruning::Nothing,
            None => {
                let catalogue = Catalogue::load(&*store)?;
                let id = |text: &String| Ok(catalogue.stream(&*store, text)?.id);
                let streams = self.streams.iter().map(id).collect::<anyhow::Result<_>>()?;
                Pruning::These { streams, with_dependents: self.dependents }
            }
        };
        let mut progress = Progress::of_objects();
        let pruned = prune(&*store, &pruning, self.delete_after, |done, total| {
            progress.set_of(done, total);
        })?;
        drop(progress);
        let mut out = stdout();
        if global.is_json() {
            let object = Object {
                removed: pruned.removed.iter().map(Named::of).collect(),
                needed: pruned.needed.iter().map(Named::of).collect(),
                interrupted_sends: pruned.forgotten,
                deleted_objects: pruned.deleted,
            };
            write_json(&mut out, "streams-prune", &object)?;
            return Ok(ExitCode::SUCCESS);
        }
        for stream in &pruned.removed {
            writeln!(out, "{} was removed", shown(stream))?;
        }
        for stream in &pruned.needed {
            writeln!(out, "{} stays: a newer stream builds on it", shown(stream))?;
        }
        if pruned.forgotten > 0 {
            writeln!(out, "{} interrupted sends were forgotten", pruned.forgotten)?;
        }
        writeln!(out, "{} objects were deleted", pruned.deleted)?;
        Ok(ExitCode::SUCCESS)
    }
}
