//! `larder objects delete`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use larder_objects::{Address, deletable, delete};
use serde::Serialize;

use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::progress::Progress;
use crate::units::Units;

/// Delete a file system, with all its states
///
/// Nothing can bring it back, unless the bucket keeps versions. It is refused while somebody has it
/// mounted, reads it, or has clones of it. After an interruption nothing opens what is left, and the
/// same command goes on. Streams of snapshots at the same place stay.
///
/// Examples:
///   larder objects delete --dry-run s3://bucket/photos
///   larder objects delete --force s3://bucket/photos
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Delete {
    /// Delete it. Without this nothing is changed
    #[arg(short, long)]
    force: bool,
    /// Say how much would be deleted, and change nothing
    #[arg(short = 'n', long, conflicts_with = "force")]
    dry_run: bool,
    /// Delete it also if a writer on another machine uses it, or died before it closed it
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    units: Units,
    /// Where the file system is
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

#[derive(Serialize)]
struct Object {
    objects: u64,
    size: u64,
    deleted: bool,
}

impl Delete {
    pub fn run(self, global: &Global) -> Outcome {
        let store = store(&self.address)?;
        if !self.force && !self.dry_run {
            let found = deletable(&*store)?;
            bail!(
                "{}: {} objects of {} would be deleted for good; --force does that",
                store.name(),
                found.objects,
                self.units.show(found.len_bytes)
            );
        }
        let found = if self.force {
            let mut progress = Progress::of_objects();
            delete(&*store, self.take_over, |done, total| progress.set_of(done, total))?
        } else {
            deletable(&*store)?
        };
        let mut out = stdout();
        if global.is_json() {
            let object =
                Object { objects: found.objects, size: found.len_bytes, deleted: self.force };
            write_json(&mut out, "objects-delete", &object)?;
        } else {
            let done = if self.force { "were" } else { "would be" };
            let size = self.units.show(found.len_bytes);
            writeln!(out, "{} objects of {size} {done} deleted", found.objects)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
