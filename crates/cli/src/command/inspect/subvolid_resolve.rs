//! `larder inspect subvolid-resolve`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::global::Global;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{stdout, write_line};
use crate::print::{Name, write_json};
use crate::source::Source;

/// Show the path of a subvolume from the top level
///
/// Examples:
///   larder inspect subvolid-resolve 256 disk.img
///   larder inspect subvolid-resolve 256 ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SubvolidResolve {
    /// Id of the subvolume
    #[arg(value_parser = parse_number)]
    id: u64,
    #[command(flatten)]
    source: Source,
    /// Something in an image, its path from the top level, or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

impl SubvolidResolve {
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystem, _) = self.source.overview_at(&self.path)?;
        let path = filesystem.subvolume_path(self.id)?;
        if global.is_json() {
            let shown = Shown { id: self.id, path: (&path).into() };
            write_json(&mut stdout(), "subvolid-resolve", &shown)?;
        } else {
            write_line(&path)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct Shown {
    id: u64,
    path: Name,
}
