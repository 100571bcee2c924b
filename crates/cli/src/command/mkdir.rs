//! `larder mkdir`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use larder::{ErrorKind, Subvolume};

use super::Outcome;
use crate::extract::umask;
use crate::mode_change::ModeChange;
use crate::source::PathSource;

/// Make directories in a file system that is not mounted
///
/// Examples:
///   larder mkdir -p disk.img:/home/ann/notes
///   larder mkdir -m 1777 disk.img:/tmp
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Mkdir {
    /// Parents too where they are missing; a directory that is there is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions of the new directories, though not of parents: as of chmod
    #[arg(short, long, value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
    #[command(flatten)]
    source: PathSource,
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Permissions of a new directory.
const PERMISSIONS: u32 = 0o755;
/// Those that a change in the command line starts from.
const ALL: u32 = 0o777;

impl Mkdir {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(&self.paths[0])?;
        let changed = self.mode.as_ref().map(|change| change.apply(ALL, true, umask()));
        let permissions = changed.unwrap_or(PERMISSIONS);
        for text in &self.paths {
            let path = writing.path(text)?;
            if self.parents {
                make_all(&writing.start, Path::new(&path), permissions)?;
            } else {
                writing.start.create_directory(&path, permissions)?;
            }
        }
        writing.end(0)
    }
}

fn make_all(start: &Subvolume, path: &Path, permissions: u32) -> larder::Result<()> {
    // From the root down, without the root itself.
    let mut ancestors: Vec<&Path> =
        path.ancestors().filter(|path| path.parent().is_some()).collect();
    ancestors.reverse();
    for ancestor in ancestors {
        let permissions = if ancestor == path { permissions } else { PERMISSIONS };
        match start.create_directory(ancestor, permissions) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                start.open_directory(ancestor)?;
            }
            made => drop(made?),
        }
    }
    Ok(())
}
