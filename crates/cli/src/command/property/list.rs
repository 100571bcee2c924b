//! `larder property list`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::find::find;
use super::known::{Known, Object};
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::PathSource;

/// List the properties that something can have
///
/// Examples:
///   larder property list disk.img:/home
///   larder property list ~/mnt/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct List {
    /// What the path stands for, if it can be several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    object: Option<Object>,
    #[command(flatten)]
    source: PathSource,
    /// A file, directory or subvolume; the top level for the file system
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

impl List {
    pub fn run(self, global: &Global) -> Outcome {
        let bearer = find(&self.source, &self.path)?;
        let mut out = stdout();
        let possible = Known::ALL.iter().filter(|known| known.is_of(&*bearer, self.object));
        if global.is_json() {
            let properties: Vec<_> = possible.map(|known| Possible::new(*known)).collect();
            write_json(&mut out, "property-list", &properties)?;
            return Ok(ExitCode::SUCCESS);
        }
        for known in possible {
            writeln!(out, "{:<20}{}", known.name(), known.description())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A property that something can have, as JSON.
#[derive(Serialize)]
struct Possible {
    name: &'static str,
    description: &'static str,
}

impl Possible {
    fn new(known: Known) -> Self {
        Self { name: known.name(), description: known.description() }
    }
}
