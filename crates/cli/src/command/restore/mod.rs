//! `larder restore`.

mod deleted;
mod unreached;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use larder::{Inode, Subvolume};
use larder_copy::{Extract, Keep, OntoHost, Visited, Visitor, below, walk};
use regex_lite::{Regex, RegexBuilder};

use crate::copying;
use crate::global::Global;
use crate::interrupt;
use crate::message::message;
use crate::operand::parse_number;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::progress::Progress;
use crate::source::{Source, on_image, warn_of_bad_copies};
use crate::target::{Target, image_path};

/// Copy everything that can be read out of a damaged file system
///
/// All subvolumes and snapshots, with owners, modes, times, extended attributes, ACLs, and symbolic
/// and hard links. It goes on after each error without a question, and names every file and
/// directory of which something is missing. What is lost of a file is a hole in the copy. The image
/// is only read, with --degraded and --rescue all unless --rescue says otherwise: data is copied
/// although no checksum proves it right, with a warning.
///
/// Names come from the index of a directory, from its hash entries, or from the inodes that it names,
/// whichever is left; files without any go to lost+found by their numbers. A directory without an
/// inode becomes one of root alone. Of a file its inode is needed.
///
/// Programs with setuid keep it: what comes out of the image of a stranger belongs in a directory
/// that other users cannot search.
///
/// First all metadata on the devices is read once. If the last commit has no root any more, an
/// earlier one is copied that is whole. If there is none, or blocks of trees are lost, the newest
/// older blocks take their place; each file and directory that they concern is named, since parts
/// of it may be missing or out of date. Without a chunk tree, the other trees and the data itself
/// tell where data lies. IMAGE@GENERATION chooses a commit that `larder rescue find-roots` lists.
///
/// With --deleted, files are copied that were deleted and whose blocks are still there, and the
/// commit and the tree block are told in which each was found. Data that no checksum proves right is
/// left out.
///
/// Exit codes:
///   0  everything was copied
///   1  something is missing, or nothing could be done
///
/// Examples:
///   larder restore disk.img saved
///   larder restore disk.img@4711:/home saved
///   larder restore -v --path-regex '^/(|home(|/ann(|/.*)))$' disk.img saved
///   larder restore -D disk.img
///   larder restore --deleted disk.img found
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Restore {
    /// List what would be copied, and copy nothing
    #[arg(short = 'D', long)]
    dry_run: bool,
    /// Copy files that were deleted, in place of those that are there
    #[arg(long)]
    deleted: bool,
    /// Name each file that is copied
    #[arg(short, long)]
    verbose: bool,
    /// Also into a directory that is not empty: files in the way are overwritten
    #[arg(short, long)]
    overwrite: bool,
    /// Start at the subvolume with this id; unless given at the top level, which holds all others
    #[arg(short, long, value_name = "ID", default_value_t = TOP_LEVEL, value_parser = parse_number,
          hide_default_value = true)]
    root: u64,
    /// Copy only what has a path like this, from the start and with a slash before it; directories
    /// above it must be like it, too
    #[arg(long, value_name = "REGEX")]
    path_regex: Option<String>,
    /// Capitals and small letters are the same in --path-regex
    #[arg(short = 'c')]
    ignore_case: bool,
    /// Go on after errors (always so)
    #[arg(short, long)]
    ignore_errors: bool,
    /// Keep owners, modes and times (always so)
    #[arg(short, long)]
    metadata: bool,
    /// Copy symbolic links (always so)
    #[arg(short = 'S', long)]
    symlink: bool,
    /// Copy snapshots (always so)
    #[arg(short, long)]
    snapshots: bool,
    /// Keep extended attributes (always so)
    #[arg(short, long)]
    xattr: bool,
    #[command(flatten)]
    source: Source,
    /// The image or device, and where to start in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    from: OsString,
    /// The directory that gets the copies; it is made if it is not there
    #[arg(value_name = "DEST", required_unless_present = "dry_run")]
    destination: Option<PathBuf>,
}

/// The subvolume that holds all others.
const TOP_LEVEL: u64 = 5;

impl Restore {
    pub fn run(self, global: &Global) -> Outcome {
        let pattern = self.pattern()?;
        let chosen = |path: &Path| {
            let path = [b"/", path.as_os_str().as_bytes()].concat();
            pattern.as_ref().is_none_or(|it| it.is_match(&String::from_utf8_lossy(&path)))
        };
        let Target { image, path } = Target::parse(&self.from);
        let path = Path::new(OsStr::from_bytes(&path));
        let shown = image_path(&self.from);
        interrupt::watch()?;
        if self.deleted {
            ensure!(path == Path::new("/"), "{}: --deleted takes no path", shown.display());
            return self.restore_deleted(&image, &chosen);
        }
        let filesystem = self.source.open_for_rescue(&image)?;
        let start = filesystem.subvolume_by_id(self.root);
        let start = start.and_then(|start: Subvolume| start.lookup(path));
        let start = start.with_context(|| on_image(&image));
        let is_everything = path == Path::new("/") && self.root == TOP_LEVEL && pattern.is_none();
        let start = match (start, &self.destination) {
            // Other subvolumes may be there without the top level.
            (Err(error), Some(destination)) if is_everything && !self.dry_run => {
                eprintln!("ERROR: {}", message(&error));
                self.prepare(destination)?;
                let failures = unreached::copy(&filesystem, &shown, destination)?;
                warn_of_bad_copies(&filesystem);
                return Ok(exit_code(failures + 1));
            }
            (start, _) => start?,
        };
        let failures = match &self.destination {
            Some(destination) if !self.dry_run => {
                let says = self.verbose || global.is_verbose();
                self.copy(&start, path, &shown, destination, |path| {
                    let is_chosen = chosen(path);
                    if is_chosen && says {
                        eprintln!("{}", below(&shown, path).display());
                    }
                    is_chosen
                })? + if is_everything {
                    unreached::copy(&filesystem, &shown, destination)?
                } else {
                    0
                }
            }
            _ => list(&start, &shown, &chosen)?,
        };
        warn_of_bad_copies(&filesystem);
        Ok(exit_code(failures))
    }

    fn pattern(&self) -> anyhow::Result<Option<Regex>> {
        let Some(pattern) = &self.path_regex else { return Ok(None) };
        let pattern = RegexBuilder::new(pattern).case_insensitive(self.ignore_case).build();
        pattern.map(Some).with_context(|| {
            let pattern = self.path_regex.as_deref().unwrap_or_default();
            format!("--path-regex: '{pattern}' is no regular expression")
        })
    }

    /// Makes the directory that gets the copies.
    fn prepare(&self, destination: &Path) -> anyhow::Result<()> {
        let named = || destination.display().to_string();
        if !destination.is_dir() {
            // Until it has the mode of the original; of others there is none.
            DirBuilder::new().mode(0o700).create(destination).with_context(named)?;
        }
        let is_empty = fs::read_dir(destination).with_context(named)?.next().is_none();
        let is_free = is_empty || self.overwrite;
        ensure!(is_free, "{}: is not empty; --overwrite goes on there", destination.display());
        Ok(())
    }

    /// Copies `start`, whose path is `path`; users call it `shown`. Returns how many failures were reported.
    fn copy(
        &self,
        start: &Inode,
        path: &Path,
        shown: &Path,
        destination: &Path,
        chosen: impl FnMut(&Path) -> bool,
    ) -> anyhow::Result<usize> {
        let named = || destination.display().to_string();
        self.prepare(destination)?;
        let is_directory = start.file_type() == larder::FileType::Directory;
        let target = path.file_name().filter(|_| !is_directory).map(PathBuf::from);
        let mut host = OntoHost::below(destination).with_context(named)?;
        let course = copying::shown(Progress::of_bytes());
        let target = target.unwrap_or_default();
        let extract = Extract::new(&mut host, target, Keep::Everything, course);
        let mut extract = extract.salvaging().choosing(chosen);
        let ended = extract.copy(start, shown);
        copying::ended(ended, &extract.into_course()).with_context(named)
    }
}

/// Prints what would be copied. Returns how many errors were reported.
fn list(start: &Inode, shown: &Path, chosen: &dyn Fn(&Path) -> bool) -> anyhow::Result<usize> {
    let mut failures = 0;
    walk(start, &mut Listing { shown, chosen }, |_, path, result| {
        interrupt::check()?;
        if let Err(error) = result {
            if crate::message::is_broken_pipe(&error) {
                return Err(error);
            }
            eprintln!("ERROR: {}: {}", below(shown, path).display(), message(&error));
            failures += 1;
        }
        Ok(())
    })?;
    Ok(failures)
}

struct Listing<'a> {
    shown: &'a Path,
    chosen: &'a dyn Fn(&Path) -> bool,
}

impl Listing<'_> {
    fn print(&self, node: &Visited<'_>) -> anyhow::Result<bool> {
        use std::io::Write;
        let is_chosen = (self.chosen)(node.path);
        if is_chosen {
            writeln!(stdout(), "{}", below(self.shown, node.path).display())?;
        }
        Ok(is_chosen)
    }
}

impl Visitor for Listing<'_> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.print(node)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.print(node).map(drop)
    }

    fn leave(&mut self, _: &Visited<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}
