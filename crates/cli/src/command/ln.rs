//! `larder ln`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::Outcome;
use crate::source::PathSource;

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
        let writing = self.source.write(&self.link)?;
        let link = writing.path(&self.link)?;
        if self.symbolic {
            writing.start.symlink(&self.target, &link)?;
        } else {
            writing.start.hard_link(writing.path(&self.target)?, &link)?;
        }
        writing.filesystem.sync()?;
        Ok(ExitCode::SUCCESS)
    }
}
