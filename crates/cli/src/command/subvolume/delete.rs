//! `larder subvolume delete`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use larder::Filesystem;

use super::mounted::ParentAndName;
use crate::global::Global;
use crate::message::message;
use crate::operand::parse_number;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::source::Source;
use crate::target::below;

/// Delete subvolumes and snapshots with all that is in them
///
/// In a mounted file system a deletion becomes durable with the next commit, unless -c or -C waits
/// for one. In an image all of them are durable when this ends. If one cannot be deleted, the
/// others still are.
///
/// Examples:
///   larder subvolume delete disk.img:/snapshots/monday
///   larder subvolume delete --subvolid 257 disk.img
///   larder subvolume delete -c mnt/snapshots/monday mnt/snapshots/tuesday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Delete {
    /// Wait for a commit after all were deleted
    #[arg(short = 'c', long, overrides_with = "commit_each")]
    commit_after: bool,
    /// Wait for a commit after each
    #[arg(short = 'C', long)]
    commit_each: bool,
    /// Delete the subvolume with this id; the one path then only says in which file system
    #[arg(short = 'i', long, value_name = "ID", value_parser = parse_number)]
    subvolid: Option<u64>,
    /// Say first when deletions are committed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    source: Source,
    /// The subvolumes, in one image by their paths from its default subvolume, or in file systems
    /// that are mounted
    #[arg(required = true, value_name = "IMAGE:/PATH or PATH")]
    paths: Vec<OsString>,
}

/// How many were not deleted.
type Failures = usize;

impl Delete {
    pub fn run(self, global: &Global) -> Outcome {
        ensure!(
            self.subvolid.is_none() || self.paths.len() == 1,
            "with --subvolid one path says in which file system, but {} were given",
            self.paths.len()
        );
        let mounted = self.source.mounted_path(&self.paths[0])?;
        if self.verbose || global.is_verbose() {
            let when = match (self.commit_each, self.commit_after || mounted.is_none()) {
                (true, _) => "after each",
                (false, true) => "at the end",
                (false, false) => "none (default)",
            };
            writeln!(stdout(), "Transaction commit: {when}")?;
        }
        let failures = match mounted {
            Some(_) => self.delete_mounted(global),
            None => self.delete_in_image(global)?,
        };
        Ok(exit_code(failures))
    }

    fn delete_mounted(&self, global: &Global) -> Failures {
        let (last, mut failures) = (self.paths.len() - 1, 0);
        let mut deleted_in = Vec::new();
        for (number, path) in self.paths.iter().enumerate() {
            let waits = self.commit_each || (self.commit_after && number == last);
            let named = || path.display().to_string();
            match self.delete_at(global, path.as_ref(), waits).with_context(named) {
                Ok(directory) => deleted_in.push((path, directory)),
                Err(error) => failures += tell(&error),
            }
        }
        if self.commit_after {
            for (path, directory) in deleted_in {
                let synced = larder_ioctl::sync(directory);
                if let Err(error) = synced.with_context(|| path.display().to_string()) {
                    failures += tell(&error);
                }
            }
        }
        failures
    }

    /// Deletes a subvolume, and with -C waits for a commit. Returns a directory of its file system.
    fn delete_at(&self, global: &Global, path: &Path, waits: bool) -> anyhow::Result<File> {
        let (directory, what) = match self.subvolid {
            Some(id) => {
                let inside = File::open(path)?;
                let from_top = larder_ioctl::subvolume_path(&inside, id).ok().flatten();
                let from_top = from_top.map(|path| OsString::from_vec(path).into());
                let deleted = larder_ioctl::delete_subvolume_by_id(&inside, id);
                deleted.with_context(|| format!("subvolume {id}"))?;
                (inside, self.named_by_id(id, from_top))
            }
            None => {
                let canonical = path.canonicalize()?;
                let named = ParentAndName::of(&canonical)?;
                named.expect_subvolume()?;
                named.delete()?;
                (named.directory().try_clone()?, format!("'{named}'"))
            }
        };
        if self.commit_each {
            larder_ioctl::sync(&directory)?;
        }
        announce(global, waits, &what)?;
        Ok(directory)
    }

    /// A subvolume that was given by its id, as btrfs-progs names it: by its path from the top level,
    /// below the path that was given.
    fn named_by_id(&self, id: u64, from_top: Option<PathBuf>) -> String {
        match from_top {
            Some(path) => format!("'{}'", below(&self.paths[0], &path).display()),
            None => format!("subvolid={id}"),
        }
    }

    fn delete_in_image(&self, global: &Global) -> anyhow::Result<Failures> {
        let writing = self.source.write(&self.paths[0], Filesystem::default_subvolume)?;
        if let Some(id) = self.subvolid {
            let shown = self.named_by_id(id, writing.filesystem.subvolume_path(id).ok());
            let deleted = writing.filesystem.delete_subvolume_by_id(id);
            deleted.with_context(|| self.paths[0].display().to_string())?;
            writing.filesystem.sync()?;
            announce(global, true, &shown)?;
            return Ok(0);
        }
        let mut failures = 0;
        let delete = |text: &OsStr| -> anyhow::Result<()> {
            let path = writing.path(text)?;
            let is_root = Path::new(&path) == Path::new("/");
            ensure!(!is_root, "the subvolume in which paths start cannot be deleted by its path");
            Ok(writing.start.delete_subvolume(path)?)
        };
        let mut deleted = Vec::new();
        for text in &self.paths {
            match delete(text).with_context(|| text.display().to_string()) {
                Ok(()) => deleted.push(text),
                Err(error) => failures += tell(&error),
            }
        }
        writing.filesystem.sync()?;
        for text in deleted {
            announce(global, true, &format!("'{}'", text.display()))?;
        }
        Ok(failures)
    }
}

/// Reports what was deleted, and whether the command waits for a commit of that.
fn announce(global: &Global, waits: bool, what: &str) -> io::Result<()> {
    if global.is_quiet() {
        return Ok(());
    }
    writeln!(stdout(), "Delete subvolume ({}): {what}", if waits { "commit" } else { "no-commit" })
}

/// Reports an error, which counts as one.
fn tell(error: &anyhow::Error) -> Failures {
    eprintln!("ERROR: {}", message(error));
    1
}
