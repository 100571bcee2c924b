//! `larder ls`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use larder::{Directory, Entry, FileType, Inode, Metadata};

use super::Outcome;
use crate::mode;
use crate::output::{Stdout, stdout};
use crate::print::local_time;
use crate::reason::in_words;
use crate::source::{PathSource, warn_of_bad_copies};
use crate::units::Units;

/// List a directory of a file system that is not mounted
///
/// Examples:
///   larder ls disk.img:/home
///   larder ls -la disk.img:/home/ann
///   larder ls -lhR disk.img
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
    #[arg(required = true, value_name = "IMAGE:/PATH")]
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
            let inode = self.source.find(path, !self.long)?;
            if self.directory || inode.file_type() != FileType::Directory {
                listing.line(path.as_bytes(), &inode)?;
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
                listing.line(entry.name().as_bytes(), &inode)?;
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
}

fn name_of(entry: &larder::Result<Entry>) -> Option<&OsStr> {
    entry.as_ref().ok().map(Entry::name)
}

/// Whether an entry is shown only with `--all`.
fn is_hidden(entry: &larder::Result<Entry>) -> bool {
    name_of(entry).is_some_and(|name| name.as_bytes().starts_with(b"."))
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

    fn line(&mut self, name: &[u8], inode: &Inode) -> anyhow::Result<()> {
        if self.inode {
            write!(self.out, "{:>7} ", inode.number())?;
        }
        if self.long {
            let metadata = inode.metadata();
            self.attributes(&metadata)?;
        }
        self.name(name)?;
        if self.long && inode.file_type() == FileType::Symlink {
            write!(self.out, " -> ")?;
            match inode.link_target() {
                Ok(target) => self.name(target.as_os_str().as_bytes())?,
                Err(error) => write!(self.out, "? ({error})")?,
            }
        }
        writeln!(self.out)?;
        Ok(())
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
