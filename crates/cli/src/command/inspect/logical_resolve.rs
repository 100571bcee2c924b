//! `larder inspect logical-resolve`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{FilePlace, Overview};
use serde::Serialize;

use crate::command::Outcome;
use crate::global::Global;
use crate::operand::parse_number;
use crate::output::stdout;
use crate::print::{JsonList, Name};
use crate::source::Source;
use crate::target::below;

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
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystem, _) = self.source.overview_at(&self.path)?;
        let places = filesystem.places_of(self.logical, self.of_whole_extent);
        let named = || format!("{}: data at address {}", self.path.display(), self.logical);
        let places = places.with_context(named)?;
        if global.is_json() {
            return self.write_json(&*filesystem, &places);
        }
        for place in places {
            if self.numbers {
                let FilePlace { subvolume, inode, offset } = place;
                writeln!(stdout(), "inode {inode} offset {offset} root {subvolume}")?;
                continue;
            }
            for path in self.paths_of(&*filesystem, place)? {
                writeln!(stdout(), "{}", path.display())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The paths of the file with the data.
    fn paths_of(
        &self,
        filesystem: &dyn Overview,
        place: FilePlace,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let subvolume = below(&self.path, &filesystem.subvolume_path(place.subvolume)?);
        let paths = filesystem.inode_paths(place.subvolume, place.inode)?;
        Ok(paths.iter().map(|path| below(subvolume.as_os_str(), path)).collect())
    }

    fn write_json(&self, filesystem: &dyn Overview, places: &[FilePlace]) -> Outcome {
        let mut out = io::BufWriter::new(stdout());
        let mut list = JsonList::new("logical-resolve");
        for &place in places {
            let paths = self.paths_of(filesystem, place)?.iter().map(Name::from).collect();
            let FilePlace { subvolume: root, inode, offset } = place;
            list.push(&mut out, &Shown { inode, offset, root, paths })?;
        }
        list.end_with(&mut out, &[])?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A part of a file as JSON.
#[derive(Serialize)]
struct Shown {
    inode: u64,
    offset: u64,
    /// The subvolume.
    root: u64,
    paths: Vec<Name>,
}
