//! `larder mv`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use super::Outcome;
use crate::source::{PathSource, Writing};

/// Move or rename files in a file system that is not mounted
///
/// Example: larder mv disk.img:/etc/fstab disk.img:/etc/fstab.old
#[derive(Debug, Args)]
pub struct Mv {
    #[command(flatten)]
    source: PathSource,
    /// What to move
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    sources: Vec<OsString>,
    /// A directory to move into, or the new name
    #[arg(value_name = "IMAGE:/DEST")]
    destination: OsString,
}

impl Mv {
    pub fn run(self) -> Outcome {
        self.source.change(&self.destination, |writing| self.rename(writing).map(|()| 0))
    }

    fn rename(&self, writing: &Writing) -> anyhow::Result<()> {
        let destination = PathBuf::from(writing.path(&self.destination)?);
        let into = writing.start.open_directory(&destination).is_ok();
        let destination_text = self.destination.display();
        ensure!(
            into || self.sources.len() == 1,
            "{destination_text}: several sources need a directory"
        );
        for text in &self.sources {
            let path = writing.path(text)?;
            let is_root = Path::new(&path) == Path::new("/");
            ensure!(!is_root, "{}: the root directory cannot be moved", text.display());
            let target = if into {
                let name = Path::new(&path).file_name();
                destination.join(name.with_context(|| format!("{}: has no name", text.display()))?)
            } else {
                destination.clone()
            };
            writing.start.rename(&path, &target)?;
        }
        Ok(())
    }
}
