//! `larder ls`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{Directory, Entry, FileType, Inode, Metadata, WalkOptions, Walked};
use larder_platform::errno::in_words;
use serde::Serialize;

use super::stat::Attributes;
use crate::global::Global;
use crate::mode;
use crate::on_mount::{self, Walk};
use crate::outcome::Outcome;
use crate::output::{Stdout, stdout, write_name};
use crate::print::{JsonList, Name, local_time};
use crate::source::{PathSource, warn_of_bad_copies};
use crate::target::{entry_path, image_path};
use crate::units::Units;

/// List a directory of a file system that is not mounted, or on a mount of larder
///
/// On a mount the server lists it, faster than a program can. Only root and the user who mounted it
/// may ask for that; others use the system's ls.
///
/// As JSON, all attributes of every entry are there, and its whole path.
///
/// Examples:
///   larder ls disk.img:/home
///   larder ls -la disk.img:/home/ann
///   larder ls -lhR disk.img
///   larder ls -lR /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Ls {
    /// Names that begin with a dot too, among them . and .. for the directory and the one above;
    /// as JSON without these two
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
    pub fn run(self, global: &Global) -> Outcome {
        let out = io::BufWriter::new(stdout());
        let json = global.is_json().then(|| JsonList::new("ls"));
        let mut listing = Listing {
            out,
            json,
            has_headings: self.paths.len() > 1 || self.recursive,
            is_first: true,
            directory: PathBuf::new(),
            long: self.long,
            inode: self.inode,
            units: self.human_readable.then(Units::default),
        };
        let mut failed = false;
        for path in &self.paths {
            listing.directory.clear();
            failed |= match self.source.mounted_path(path)? {
                Some(path) => {
                    let listed = self.list_mounted(&mut listing, path);
                    listed.with_context(|| path.display().to_string())?
                }
                None => self.list_in_image(&mut listing, path)?,
            };
            listing.is_first = false;
        }
        listing.end()?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Lists `path`, an `IMAGE:/path`. Returns true if anything could not be read.
    fn list_in_image(&self, listing: &mut Listing, path: &OsStr) -> anyhow::Result<bool> {
        let inode = self.source.find(path, !self.long)?;
        if self.directory || inode.file_type() != FileType::Directory {
            listing.inode(image_path(path).as_os_str(), &inode)?;
            return Ok(false);
        }
        let filesystem = inode.subvolume().filesystem().clone();
        let failed = self.list(listing, image_path(path), inode.into_directory()?)?;
        warn_of_bad_copies(&filesystem);
        Ok(failed)
    }

    /// Lists a directory, and with `--recursive` those below it. Returns true if anything could not
    /// be read.
    fn list(
        &self,
        listing: &mut Listing,
        path: PathBuf,
        directory: Directory,
    ) -> anyhow::Result<bool> {
        let mut failed = false;
        // A hostile image may have a directory in several places, or in itself.
        let mut listed = HashSet::new();
        let mut waiting = vec![(path, directory)];
        while let Some((path, directory)) = waiting.pop() {
            if !listed.insert((directory.subvolume().id(), directory.number())) {
                continue;
            }
            listing.enter(&path)?;
            if self.all {
                let above = directory.parent().unwrap_or_else(|_| directory.clone());
                listing.dots(&directory.metadata(), &above.metadata())?;
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
                        let error = in_words(&error);
                        eprintln!("ERROR: {}: {error}", path.as_os_str().as_bytes().escape_ascii());
                        failed = true;
                        continue;
                    }
                };
                listing.inode(entry.name(), &inode)?;
                if self.recursive && inode.file_type() == FileType::Directory {
                    below.push((entry_path(&path, entry.name()), inode.into_directory()?));
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(failed)
    }

    /// Lists `path` on a mount, as [`list_in_image`](Self::list_in_image) does in an image.
    fn list_mounted(&self, listing: &mut Listing, path: &Path) -> anyhow::Result<bool> {
        let follows = !self.long && !self.directory;
        let top = on_mount::resolved(path, follows)?;
        let below = self.recursive && !self.directory;
        let mut walk = Walk::begin(
            &top,
            WalkOptions { below, targets: listing.shows_targets(), ..<_>::default() },
        )?;
        // The entries of a directory that is shown.
        let mut directory: Option<Vec<Shown>> = None;
        let mut is_file = true;
        while let Some(walked) = walk.next()? {
            match (walked, &mut directory) {
                (Walked::Directory { metadata, .. }, _) if self.directory => {
                    listing.line(path.as_os_str(), &metadata, None)?;
                    break;
                }
                (Walked::Directory { path: entered, metadata, .. }, last) => {
                    is_file = false;
                    listing.lines(last.take())?;
                    let below = Path::new(&entered);
                    if !self.all && below.iter().any(is_dotted) {
                        continue;
                    }
                    let shown = if below == Path::new("") { path } else { &path.join(below) };
                    listing.enter(shown)?;
                    if self.all {
                        listing
                            .dots(&metadata, &above(shown).unwrap_or_else(|| metadata.clone()))?;
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
                    listing.line(path.as_os_str(), &metadata, target)?;
                }
                _ => {}
            }
        }
        listing.lines(directory)?;
        Ok(walk.failures() > 0)
    }
}

/// The attributes of the directory above `path`, if the same server shows it.
fn above(path: &Path) -> Option<Metadata> {
    let above = path.join("..").canonicalize().ok()?;
    match Walk::begin(&above, WalkOptions::default()).ok()?.next().ok()?? {
        Walked::Directory { metadata, .. } => Some(metadata),
        _ => None,
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
    json: Option<JsonList>,
    /// Write the path of each directory before its entries.
    has_headings: bool,
    /// Nothing is written yet.
    is_first: bool,
    /// The directory whose entries come.
    directory: PathBuf,
    long: bool,
    inode: bool,
    /// Units of sizes; bytes if not given.
    units: Option<Units>,
}

impl Listing {
    /// Begins with the entries of a directory.
    fn enter(&mut self, path: &Path) -> io::Result<()> {
        path.clone_into(&mut self.directory);
        if self.json.is_some() || !self.has_headings {
            return Ok(());
        }
        if !self.is_first {
            writeln!(self.out)?;
        }
        self.is_first = false;
        write_name(&mut self.out, path)?;
        writeln!(self.out, ":")
    }

    /// Writes what each directory contains, itself and the one above, unless as JSON.
    fn dots(&mut self, itself: &Metadata, above: &Metadata) -> io::Result<()> {
        if self.json.is_some() {
            return Ok(());
        }
        self.line(OsStr::new("."), itself, None)?;
        self.line(OsStr::new(".."), above, None)
    }

    /// Whether the targets of symbolic links are shown.
    fn shows_targets(&self) -> bool {
        self.long || self.json.is_some()
    }

    fn inode(&mut self, name: &OsStr, inode: &Inode) -> anyhow::Result<()> {
        let shows_target = self.shows_targets() && inode.file_type() == FileType::Symlink;
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
            self.line(&name, &metadata, target)
        })
    }

    /// Writes an entry of the directory, or an operand.
    fn line(
        &mut self,
        name: &OsStr,
        metadata: &Metadata,
        target: Option<Result<OsString, String>>,
    ) -> io::Result<()> {
        if let Some(json) = &mut self.json {
            let target = target.and_then(Result::ok).map(|target| (&target).into());
            let path = (&entry_path(&self.directory, name)).into();
            let object = Object { path, target, attributes: Attributes::new(metadata) };
            return json.push(&mut self.out, &object);
        }
        if self.inode {
            write!(self.out, "{:>7} ", metadata.inode)?;
        }
        if self.long {
            self.attributes(metadata)?;
        }
        write_name(&mut self.out, name)?;
        if self.long
            && let Some(target) = target
        {
            write!(self.out, " -> ")?;
            match target {
                Ok(target) => write_name(&mut self.out, target)?,
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

    fn end(mut self) -> io::Result<()> {
        if let Some(json) = self.json.take() {
            json.end_with(&mut self.out, &[])?;
        }
        self.out.flush()
    }
}

/// A file as JSON.
#[derive(Serialize)]
struct Object {
    path: Name,
    /// None if it is no symbolic link, or one that cannot be read.
    target: Option<Name>,
    #[serde(flatten)]
    attributes: Attributes,
}
