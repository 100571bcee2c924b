//! `larder ln`.

use std::ffi::OsString;

use anyhow::ensure;
use clap::Args;
use larder::ErrorKind;

use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};

/// Give a file of a file system that is not mounted a further name, or make a symbolic link
///
/// Examples:
///   larder ln disk.img:/bin/gzip disk.img:/bin/gunzip
///   larder ln -s ../usr/bin disk.img:/bin
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Ln {
    /// Make a symbolic link, which points to TARGET as it stands
    #[arg(short, long)]
    symbolic: bool,
    /// Replace a file that has the new name; a directory stays
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    source: PathSource,
    /// What the link is to: IMAGE:/PATH, and with --symbolic any text
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// The new name
    #[arg(value_name = "IMAGE:/LINK")]
    link: OsString,
}

impl Ln {
    pub fn run(self) -> Outcome {
        self.source.change(&self.link, |writing| self.link(writing).map(|()| 0))
    }

    fn link(&self, writing: &Writing) -> anyhow::Result<()> {
        ensure!(!self.target.is_empty(), "{}: a link to nothing", self.link.display());
        let link = writing.path(&self.link)?;
        let original = (!self.symbolic).then(|| writing.path(&self.target)).transpose()?;
        if let Some(original) = &original
            && self.force
            && let Ok(there) = writing.start.lookup(&link)
            && writing.start.lookup(original)? == there
        {
            return Ok(());
        }
        if self.force {
            match writing.start.remove_file(&link) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        match original {
            None => drop(writing.start.symlink(&self.target, &link)?),
            Some(original) => writing.start.hard_link(original, &link)?,
        }
        Ok(())
    }
}
