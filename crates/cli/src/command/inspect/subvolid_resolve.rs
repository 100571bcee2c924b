//! `larder inspect subvolid-resolve`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use crate::command::Outcome;
use crate::operand::parse_number;
use crate::output::stdout;
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
    pub fn run(self) -> Outcome {
        let (filesystem, _) = self.source.overview_at(&self.path)?;
        writeln!(stdout(), "{}", filesystem.subvolume_path(self.id)?.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
