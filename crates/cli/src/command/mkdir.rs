//! `larder mkdir`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use larder::{ErrorKind, Subvolume};

use super::Outcome;
use crate::source::PathSource;

/// Make directories in a file system that is not mounted
///
/// Example: larder mkdir -p disk.img:/home/ann/notes
#[derive(Debug, Args)]
pub struct Mkdir {
    /// Parents too where they are missing; a directory that is there is no error
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    source: PathSource,
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Permissions of a new directory.
const PERMISSIONS: u32 = 0o755;

impl Mkdir {
    pub fn run(self) -> Outcome {
        let writing = self.source.write(&self.paths[0])?;
        for text in &self.paths {
            let path = writing.path(text)?;
            if self.parents {
                make_all(&writing.start, Path::new(&path))?;
            } else {
                writing.start.create_directory(&path, PERMISSIONS)?;
            }
        }
        writing.filesystem.sync()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn make_all(start: &Subvolume, path: &Path) -> larder::Result<()> {
    // From the root down, without the root itself.
    let mut ancestors: Vec<&Path> =
        path.ancestors().filter(|path| path.parent().is_some()).collect();
    ancestors.reverse();
    for ancestor in ancestors {
        match start.create_directory(ancestor, PERMISSIONS) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                start.open_directory(ancestor)?;
            }
            made => drop(made?),
        }
    }
    Ok(())
}
