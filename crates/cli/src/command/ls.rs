//! `larder ls`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{Directory, Entry, FileType, Inode, Metadata, WalkOptions, Walked};

use super::Outcome;
use crate::mode;
use crate::on_mount::{self, Walk};
use crate::output::{Stdout, stdout};
use crate::print::local_time;
use crate::reason::in_words;
use crate::source::{PathSource, warn_of_bad_copies};
use crate::units::Units;

/// List a directory of a file system that is not mounted, or on a mount of larder
///
/// On a mount the server lists it, faster than a program can. Only root and the user who mounted it
/// may ask for that; others use the system's ls.
///
/// Examples:
///   larder ls disk.img:/home
///   larder ls -la disk.img:/home/ann
///   larder ls -lhR disk.img
///   larder ls -lR /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Ls {
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// Sizes in the unit that suits each
    #[arg(short = 'h', long, requires = "long")]
    human_readable: bool,
    /// The number of each inode; in another subvolume another file can have the same
    #[arg(short, long)]
    inode: bool,
    /// Mode, links, owner, group, size, time and name of each entry
    #[arg(short, long)]
    long: bool,
    /// Subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The directory itself and not what is in it
    #[arg(short, long)]
    directory: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to list; without a path, the root
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Ls {
    pub fn run(self) -> Outcome {
        let mut listing = Listing {
            out: io::BufWriter::new(stdout()),
            long: self.long,
            inode: self.inode,
            units: self.human_readable.then(Units::default),
            escape: io::stdout().is_terminal(),
        };
        let mut failed = false;
        let headings = self.paths.len() > 1 || self.recursive;
        for (number, path) in self.paths.iter().enumerate() {
            if let Some(path) = self.source.mounted_path(path)? {
                let listed = self.list_mounted(&mut listing, path, headings, number > 0);
                failed |= listed.with_context(|| path.display().to_string())?;
                continue;
            }
            let inode = self.source.find(path, !self.long)?;
            if self.directory || inode.file_type() != FileType::Directory {
                listing.inode(path.as_bytes(), &inode)?;
                continue;
            }
            let filesystem = inode.subvolume().filesystem().clone();
            failed |=
                self.list(&mut listing, path, inode.into_directory()?, headings, number > 0)?;
            warn_of_bad_copies(&filesystem);
        }
        listing.out.flush()?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Lists a directory, and with `--recursive` those below it. Returns true if anything could not
    /// be read.
    fn list(
        &self,
        listing: &mut Listing,
        path: &OsStr,
        directory: Directory,
        headings: bool,
        mut spaced: bool,
    ) -> anyhow::Result<bool> {
        let mut failed = false;
        // A hostile image may have a directory in several places, or in itself.
        let mut listed = HashSet::new();
        let mut waiting = vec![(path.as_bytes().to_vec(), directory)];
        while let Some((path, directory)) = waiting.pop() {
            if !listed.insert((directory.subvolume().id(), directory.number())) {
                continue;
            }
            if headings {
                listing.heading(&path, spaced)?;
                spaced = true;
            }
            let mut below = Vec::new();
            let shown = |entry: &larder::Result<Entry>| self.all || !is_hidden(entry);
            let mut entries: Vec<_> = directory.entries()?.filter(shown).collect();
            entries.sort_by(|a, b| name_of(a).cmp(&name_of(b)));
            for entry in entries {
                let listed = entry.and_then(|entry| Ok((entry.open()?, entry)));
                let (inode, entry) = match listed {
                    Ok(listed) => listed,
                    Err(error) => {
                        let error = in_words(&error.to_string());
                        eprintln!("ERROR: {}: {error}", path.escape_ascii());
                        failed = true;
                        continue;
                    }
                };
                listing.inode(entry.name().as_bytes(), &inode)?;
                if self.recursive && inode.file_type() == FileType::Directory {
                    let separator = if path.ends_with(b"/") { &b""[..] } else { b"/" };
                    let path = [&path, separator, entry.name().as_bytes()].concat();
                    below.push((path, inode.into_directory()?));
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(failed)
    }

    /// Lists `path` on a mount, as [`list`](Self::list) does in an image.
    fn list_mounted(
        &self,
        listing: &mut Listing,
        path: &Path,
        headings: bool,
        mut spaced: bool,
    ) -> anyhow::Result<bool> {
        let follows = !self.long && !self.directory;
        let top = on_mount::resolved(path, follows)?;
        let below = self.recursive && !self.directory;
        let mut walk =
            Walk::begin(&top, WalkOptions { below, targets: self.long, ..<_>::default() })?;
        // The entries of a directory that is shown.
        let mut directory: Option<Vec<Shown>> = None;
        let mut is_file = true;
        while let Some(walked) = walk.next()? {
            match (walked, &mut directory) {
                (Walked::Directory { metadata, .. }, _) if self.directory => {
                    listing.line(path.as_os_str().as_bytes(), &metadata, None)?;
                    break;
                }
                (Walked::Directory { path: entered, .. }, last) => {
                    is_file = false;
                    listing.lines(last.take())?;
                    let below = Path::new(&entered);
                    if !self.all && below.iter().any(is_dotted) {
                        continue;
                    }
                    if headings {
                        let shown = if below == Path::new("") { path } else { &path.join(below) };
                        listing.heading(shown.as_os_str().as_bytes(), spaced)?;
                        spaced = true;
                    }
                    directory = Some(Vec::new());
                }
                (Walked::Entry { name, metadata, target, .. }, Some(entries))
                    if self.all || !is_dotted(&name) =>
                {
                    entries.push((name, metadata, target));
                }
                (Walked::Entry { metadata, target, .. }, _) if is_file => {
                    let target = (metadata.file_type == FileType::Symlink).then_some(Ok(target));
                    listing.line(path.as_os_str().as_bytes(), &metadata, target)?;
                }
                _ => {}
            }
        }
        listing.lines(directory)?;
        Ok(walk.failures() > 0)
    }
}

/// The name of an entry, its attributes, and the target of a symbolic link.
type Shown = (OsString, Metadata, OsString);

fn is_dotted(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn name_of(entry: &larder::Result<Entry>) -> Option<&OsStr> {
    entry.as_ref().ok().map(Entry::name)
}

/// Whether an entry is shown only with `--all`.
fn is_hidden(entry: &larder::Result<Entry>) -> bool {
    name_of(entry).is_some_and(is_dotted)
}

/// Writes lists.
struct Listing {
    out: io::BufWriter<Stdout>,
    long: bool,
    inode: bool,
    /// Units of sizes; bytes if not given.
    units: Option<Units>,
    /// Write control characters of names as escapes, since a terminal would obey them.
    escape: bool,
}

impl Listing {
    fn heading(&mut self, path: &[u8], spaced: bool) -> io::Result<()> {
        if spaced {
            writeln!(self.out)?;
        }
        self.name(path)?;
        writeln!(self.out, ":")
    }

    fn inode(&mut self, name: &[u8], inode: &Inode) -> anyhow::Result<()> {
        let shows_target = self.long && inode.file_type() == FileType::Symlink;
        let target = shows_target.then(|| inode.link_target().map(PathBuf::into_os_string));
        let target = target.map(|target| target.map_err(|error| error.to_string()));
        Ok(self.line(name, &inode.metadata(), target)?)
    }

    /// Writes the entries of a directory, sorted by name.
    fn lines(&mut self, entries: Option<Vec<Shown>>) -> io::Result<()> {
        let mut entries = entries.unwrap_or_default();
        entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        entries.into_iter().try_for_each(|(name, metadata, target)| {
            let target = (metadata.file_type == FileType::Symlink).then_some(Ok(target));
            self.line(name.as_bytes(), &metadata, target)
        })
    }

    fn line(
        &mut self,
        name: &[u8],
        metadata: &Metadata,
        target: Option<Result<OsString, String>>,
    ) -> io::Result<()> {
        if self.inode {
            write!(self.out, "{:>7} ", metadata.inode)?;
        }
        if self.long {
            self.attributes(metadata)?;
        }
        self.name(name)?;
        if self.long
            && let Some(target) = target
        {
            write!(self.out, " -> ")?;
            match target {
                Ok(target) => self.name(target.as_bytes())?,
                Err(error) => write!(self.out, "? ({error})")?,
            }
        }
        writeln!(self.out)
    }

    fn attributes(&mut self, metadata: &Metadata) -> io::Result<()> {
        let size = match metadata.file_type {
            FileType::BlockDevice | FileType::CharDevice => {
                format!("{}, {}", metadata.device.0, metadata.device.1)
            }
            _ => match self.units {
                Some(units) => units.show(metadata.size_bytes),
                None => metadata.size_bytes.to_string(),
            },
        };
        write!(
            self.out,
            "{} {:>4} {:>5} {:>5} {size:>12} {} ",
            mode::text(metadata.mode),
            metadata.nlink,
            metadata.uid,
            metadata.gid,
            local_time(metadata.mtime.seconds),
        )
    }

    fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.escape && name.iter().any(u8::is_ascii_control) {
            return write!(self.out, "{}", name.escape_ascii());
        }
        self.out.write_all(name)
    }
}
