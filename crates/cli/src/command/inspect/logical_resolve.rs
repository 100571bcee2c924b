//! `larder inspect logical-resolve`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::FilePlace;

use super::below;
use crate::command::Outcome;
use crate::operand::parse_number;
use crate::output::stdout;
use crate::source::Source;

/// Show the files that contain the data at a logical address
///
/// Paths are below PATH as if that were the top level.
///
/// Examples:
///   larder inspect logical-resolve 13631488 disk.img
///   larder inspect logical-resolve -P 13631488 ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct LogicalResolve {
    /// Show inodes, offsets and subvolumes and no paths
    #[arg(short = 'P')]
    numbers: bool,
    /// Show all files that contain any data of the extent at the address
    #[arg(short = 'o')]
    of_whole_extent: bool,
    /// Bytes of the buffer for results, which grows as needed anyway
    #[arg(short, value_name = "SIZE", value_parser = parse_number)]
    size: Option<u64>,
    /// Tell more, of which there is nothing
    #[arg(short)]
    verbose: bool,
    /// The logical address, in bytes
    #[arg(value_parser = parse_number)]
    logical: u64,
    #[command(flatten)]
    source: Source,
    /// Something in an image, its path from the top level, or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

impl LogicalResolve {
    pub fn run(self) -> Outcome {
        let (filesystem, _) = self.source.overview_at(&self.path)?;
        let places = filesystem.places_of(self.logical, self.of_whole_extent);
        let named = || format!("{}: data at address {}", self.path.display(), self.logical);
        for place in places.with_context(named)? {
            if self.numbers {
                let FilePlace { subvolume, inode, offset } = place;
                writeln!(stdout(), "inode {inode} offset {offset} root {subvolume}")?;
                continue;
            }
            let subvolume = below(&self.path, &filesystem.subvolume_path(place.subvolume)?);
            for path in filesystem.inode_paths(place.subvolume, place.inode)? {
                writeln!(stdout(), "{}", below(subvolume.as_os_str(), &path).display())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
