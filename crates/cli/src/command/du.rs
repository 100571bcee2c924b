//! `larder du`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larder::{FileType, Metadata, WalkOptions, Walked};
use serde::Serialize;

use crate::global::Global;
use crate::on_mount::{self, Walk};
use crate::outcome::{Outcome, exit_code};
use crate::output::{Stdout, stdout, write_name};
use crate::print::{JsonList, Name};
use crate::source::{PathSource, warn_of_bad_copies};
use crate::target::image_path;
use crate::tree::{Visited, Visitor, walk};

/// Show how much space trees take, in a file system that is not mounted, or on a mount of larder
///
/// The space is what the extents of each file cover, so that shared and compressed extents count in
/// full; a file with several names counts once. Sizes are in units of 1024 bytes, rounded up, as
/// those of the system's du; as JSON they are in bytes.
///
/// On a mount the server sums up, faster than a program can. Only root and the user who mounted it
/// may ask for that; others use the system's du.
///
/// Examples:
///   larder du -sh disk.img:/home
///   larder du -d 1 /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Du {
    /// Files too, not directories only
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// The lengths of files instead of the space that they take
    #[arg(long)]
    apparent_size: bool,
    /// The lengths of files, in bytes
    #[arg(short, long)]
    bytes: bool,
    /// A line with the sum of all
    #[arg(short = 'c', long)]
    total: bool,
    /// Only directories so many levels below, and files with --all; 0 is as --summarize
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Sizes in the unit that suits each, base 1024
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Sizes in MiB
    #[arg(short)]
    mebibytes: bool,
    /// Sizes in KiB; this is the default
    #[arg(short)]
    kibibytes: bool,
    /// One line for each operand
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to sum up; without a path, the root
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Du {
    pub fn run(self, global: &Global) -> Outcome {
        let deepest = if self.summarize { Some(0) } else { self.max_depth };
        let out = io::BufWriter::new(stdout());
        let json = global.is_json().then(|| JsonList::new("du"));
        let mut sums = Sums {
            out,
            json,
            options: &self,
            deepest: deepest.unwrap_or(usize::MAX),
            top: PathBuf::new(),
            open: Vec::new(),
            met: HashSet::new(),
            total_bytes: 0,
        };
        let mut failures = 0;
        for text in &self.paths {
            if let Some(path) = self.source.mounted_path(text)? {
                path.clone_into(&mut sums.top);
                let summed = sum_mounted(path, &mut sums);
                failures += summed.with_context(|| path.display().to_string())?;
            } else {
                sums.top = image_path(text);
                let inode = self.source.find(text, false)?;
                failures += walk(&inode, &mut sums)?;
                warn_of_bad_copies(inode.subvolume().filesystem());
            }
        }
        let mut out = sums.out;
        if let Some(json) = sums.json {
            json.end_with(&mut out, &[("total", sums.total_bytes)])?;
        } else if self.total {
            writeln!(out, "{}\ttotal", self.shown(sums.total_bytes))?;
        }
        out.flush()?;
        Ok(exit_code(failures))
    }

    /// The bytes that an inode counts for.
    fn bytes_of(&self, metadata: &Metadata) -> u64 {
        if !self.apparent_size && !self.bytes {
            return metadata.allocated_bytes + metadata.dirty_bytes;
        }
        match metadata.file_type {
            FileType::Regular | FileType::Symlink | FileType::Directory => metadata.size_bytes,
            _ => 0,
        }
    }

    fn shown(&self, bytes: u64) -> String {
        if self.human_readable {
            return human(bytes);
        }
        let unit = match (self.mebibytes, self.kibibytes, self.bytes) {
            (true, ..) => 1 << 20,
            (false, false, true) => 1,
            _ => 1 << 10,
        };
        bytes.div_ceil(unit).to_string()
    }
}

/// Sums up `path` on a mount. Returns how many failures were reported.
fn sum_mounted(path: &Path, sums: &mut Sums<'_>) -> anyhow::Result<usize> {
    let path = &on_mount::resolved(path, false)?;
    let mut walk = Walk::begin(path, WalkOptions { below: true, ..WalkOptions::default() })?;
    // A directory that was summed up before.
    let mut known: Option<PathBuf> = None;
    let mut is_in_known = false;
    while let Some(walked) = walk.next()? {
        match walked {
            Walked::Directory { path, metadata, .. } => {
                let path = Path::new(&path);
                is_in_known = known.as_ref().is_some_and(|known| path.starts_with(known));
                if is_in_known {
                    continue;
                }
                while sums.open.last().is_some_and(|open| !path.starts_with(&open.path)) {
                    sums.leave()?;
                }
                if !sums.enter(path, &metadata) {
                    known = Some(path.to_owned());
                    is_in_known = true;
                }
            }
            Walked::Entry { name, metadata, .. }
                if metadata.file_type != FileType::Directory && !is_in_known =>
            {
                let above = sums.open.last().map(|open| open.path.clone());
                let path = above.map_or_else(PathBuf::new, |above| above.join(name));
                sums.file(&path, &metadata)?;
            }
            _ => {}
        }
    }
    while !sums.open.is_empty() {
        sums.leave()?;
    }
    Ok(walk.failures())
}

/// A directory that is being summed up.
struct Open {
    /// Its path below the operand.
    path: PathBuf,
    bytes: u64,
}

/// Sums up trees.
struct Sums<'a> {
    out: io::BufWriter<Stdout>,
    json: Option<JsonList>,
    options: &'a Du,
    /// The deepest level that has lines.
    deepest: usize,
    /// The operand.
    top: PathBuf,
    open: Vec<Open>,
    /// The subvolumes and numbers of inodes that may come again.
    met: HashSet<(u64, u64)>,
    total_bytes: u64,
}

impl Sums<'_> {
    /// Enters a directory, unless it was summed up before. Returns whether it did.
    fn enter(&mut self, path: &Path, metadata: &Metadata) -> bool {
        if !self.is_new(metadata) {
            return false;
        }
        let bytes = self.options.bytes_of(metadata);
        self.open.push(Open { path: path.to_owned(), bytes });
        true
    }

    /// Whether an inode was not met before. Each has one name if one tree is summed up, except
    /// files with several names.
    fn is_new(&mut self, metadata: &Metadata) -> bool {
        let is_directory = metadata.file_type == FileType::Directory;
        let may_come_again = self.options.paths.len() > 1 || metadata.nlink > 1 && !is_directory;
        !may_come_again || self.met.insert((metadata.subvolume, metadata.inode))
    }

    fn leave(&mut self) -> io::Result<()> {
        let Some(Open { path, bytes }) = self.open.pop() else { return Ok(()) };
        self.add(bytes);
        if self.open.len() <= self.deepest { self.below(bytes, &path) } else { Ok(()) }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        if !self.is_new(metadata) {
            return Ok(());
        }
        let bytes = self.options.bytes_of(metadata);
        self.add(bytes);
        let is_operand = self.open.is_empty();
        let is_shown = is_operand || self.options.all && self.open.len() <= self.deepest;
        if is_shown { self.below(bytes, path) } else { Ok(()) }
    }

    fn add(&mut self, bytes: u64) {
        match self.open.last_mut() {
            Some(above) => above.bytes += bytes,
            None => self.total_bytes += bytes,
        }
    }

    /// Writes the line of `path` below the operand.
    fn below(&mut self, bytes: u64, path: &Path) -> io::Result<()> {
        let is_top = path == Path::new("");
        let path = if is_top { self.top.clone() } else { self.top.join(path) };
        if let Some(json) = &mut self.json {
            return json.push(&mut self.out, &Object { path: (&path).into(), size: bytes });
        }
        write!(self.out, "{}\t", self.options.shown(bytes))?;
        write_name(&mut self.out, path)?;
        self.out.write_all(b"\n")
    }
}

/// A tree or a file as JSON, and its bytes.
#[derive(Serialize)]
struct Object {
    path: Name,
    size: u64,
}

impl Visitor for Sums<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        Ok(Self::enter(self, node.path, &node.inode.metadata()))
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        Ok(self.file(node.path, &node.inode.metadata())?)
    }

    fn leave(&mut self, _: &Visited<'_>) -> anyhow::Result<()> {
        Ok(Self::leave(self)?)
    }
}

/// A size as `du -h` shows it: rounded up, with one decimal below ten.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes > 1023 << (10 * unit) {
        unit += 1;
    }
    let scale = 1_u128 << (10 * unit);
    let tenths = (u128::from(bytes) * 10).div_ceil(scale);
    if unit == 0 || tenths > 99 {
        format!("{}{}", u128::from(bytes).div_ceil(scale), UNITS[unit])
    } else {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        let shown = [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (4096, "4.0K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            (1023 << 10, "1023K"),
            ((1023 << 10) + 1, "1.0M"),
            (1 << 20, "1.0M"),
            (u64::MAX, "16E"),
        ];
        for (bytes, expected) in shown {
            assert_eq!(human(bytes), expected, "{bytes}");
        }
    }
}
