//! `larder inspect rootid`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::Source;

/// Show the id of the subvolume that something lies in
///
/// Examples:
///   larder inspect rootid disk.img:/home/notes
///   larder inspect rootid ~/mnt/home/notes
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Rootid {
    #[command(flatten)]
    source: Source,
    /// Something in an image, its path from the top level, or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

impl Rootid {
    pub fn run(self, global: &Global) -> Outcome {
        let (_, id) = self.source.overview_at(&self.path)?;
        if global.is_json() {
            write_json(&mut stdout(), "rootid", &Shown { rootid: id })?;
        } else {
            writeln!(stdout(), "{id}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct Shown {
    rootid: u64,
}
