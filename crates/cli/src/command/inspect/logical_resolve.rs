//! `larder inspect logical-resolve`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{FilePlace, Overview};
use larder_fuse::usage::MountTable;
use serde::Serialize;

use crate::global::Global;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{stdout, write_line};
use crate::print::{JsonList, Name};
use crate::source::Source;
use crate::target::below;

/// Show the files that contain the data at a logical address
///
/// Of an image, paths start at its top level. Of a mount they are those that it shows; a file in a
/// subvolume that it does not show is named by inode and subvolume.
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
        let start = Start::of(&self.path, &*filesystem)?;
        if global.is_json() {
            return write_json(&*filesystem, &start, &places);
        }
        for place in places {
            if self.numbers {
                let FilePlace { subvolume, inode, offset } = place;
                writeln!(stdout(), "inode {inode} offset {offset} root {subvolume}")?;
                continue;
            }
            let subvolume = filesystem.subvolume_path(place.subvolume)?;
            let Some(directory) = start.directory_of(&subvolume) else {
                let (inode, subvolume) = (place.inode, subvolume.display());
                let missing = "could not be accessed: not mounted";
                writeln!(stdout(), "inode {inode} subvol {subvolume} {missing}")?;
                continue;
            };
            for path in paths_in(&directory, &*filesystem, place)? {
                write_line(&path)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write_json(filesystem: &dyn Overview, start: &Start, places: &[FilePlace]) -> Outcome {
    let mut out = io::BufWriter::new(stdout());
    let mut list = JsonList::new("logical-resolve");
    for &place in places {
        let subvolume = filesystem.subvolume_path(place.subvolume)?;
        // None where no mount shows it.
        let found = match start.directory_of(&subvolume) {
            Some(directory) => paths_in(&directory, filesystem, place)?,
            None => Vec::new(),
        };
        let paths = found.iter().map(Name::from).collect();
        let FilePlace { subvolume: root, inode, offset } = place;
        list.push(&mut out, &Shown { inode, offset, root, paths })?;
    }
    list.end_with(&mut out, &[])?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Where paths in a file system begin for the user.
struct Start {
    /// An image, or a mountpoint.
    place: OsString,
    /// The path of the subvolume that is there; empty for the top level.
    root: PathBuf,
}

impl Start {
    /// The beginning of what the user calls `path`: of an image the top level, of a mount the
    /// subvolume that is mounted.
    fn of(path: &OsStr, filesystem: &dyn Overview) -> anyhow::Result<Self> {
        let place = path.to_owned();
        if !filesystem.is_mounted() {
            return Ok(Self { place, root: PathBuf::new() });
        }
        let inside = Path::new(path).canonicalize()?;
        let table = MountTable::of_this_process()?;
        let mounts = table.of_btrfs().filter(|mount| inside.starts_with(&mount.path));
        let mount = mounts.max_by_key(|mount| (mount.path.as_os_str().len(), mount.id));
        let mount = mount.context("no mount is there")?;
        let root = larder_ioctl::subvolume_id(File::open(&mount.path)?)?;
        let root = filesystem.subvolume_path(root)?;
        let place = if mount.path == inside { place } else { mount.path.clone().into() };
        Ok(Self { place, root })
    }

    /// The directory of the subvolume with the path `subvolume`; `None` if it lies elsewhere.
    fn directory_of(&self, subvolume: &Path) -> Option<PathBuf> {
        let inside = subvolume.strip_prefix(&self.root).ok()?;
        Some(below(&self.place, inside))
    }
}

/// The paths of the file with the data, whose subvolume is at `directory`.
fn paths_in(
    directory: &Path,
    filesystem: &dyn Overview,
    place: FilePlace,
) -> anyhow::Result<Vec<PathBuf>> {
    let paths = filesystem.inode_paths(place.subvolume, place.inode)?;
    Ok(paths.iter().map(|path| directory.join(path)).collect())
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
