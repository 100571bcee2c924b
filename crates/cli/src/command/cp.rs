//! `larder cp`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use larder::{FileType, Inode};

use super::Outcome;
use crate::extract::{Extract, Keep};
use crate::source::{PathSource, warn_of_bad_copies};
use crate::target::Target;
use crate::tree::walk;

/// Copy files out of a file system that is not mounted
///
/// Examples:
///   larder cp disk.img:/etc/fstab .
///   larder cp -a disk.img:/home backup
///
/// The copy of the root directory is what is in it. Files that are in the way are replaced;
/// nothing is written through symbolic links.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Cp {
    /// Directories too, with all that is in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Like --recursive, and keep modes, owners, times, extended attributes, ACLs and hard links
    #[arg(short, long)]
    archive: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to copy
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    sources: Vec<OsString>,
    /// A directory to copy into, or the name of the copy
    #[arg(value_name = "DEST")]
    destination: PathBuf,
}

impl Cp {
    pub fn run(self) -> Outcome {
        let into = self.destination.is_dir();
        if self.sources.len() > 1 && !into {
            bail!("{}: several sources need a directory", self.destination.display());
        }
        let keep = if self.archive { Keep::Everything } else { Keep::Permissions };
        let mut failures = 0;
        for source in &self.sources {
            let inode = self.source.find(source, !self.archive)?;
            if inode.file_type() == FileType::Directory && !self.recursive && !self.archive {
                bail!("{}: is a directory (use --recursive)", source.display());
            }
            let (parent, name) = self.place(source, &inode, into)?;
            let mut extract = Extract::new(&parent, name, keep)
                .with_context(|| format!("cannot copy to {}", self.destination.display()))?;
            failures += walk(&inode, &mut extract)?;
            warn_of_bad_copies(&inode.subvolume().filesystem());
        }
        Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The directory that the copy goes to, and its name there.
    fn place(
        &self,
        source: &OsStr,
        inode: &Inode,
        into: bool,
    ) -> anyhow::Result<(PathBuf, OsString)> {
        let path = Target::parse(source).path;
        let name = Path::new(OsStr::from_bytes(&path)).file_name();
        if into {
            if let Some(name) = name {
                return Ok((self.destination.clone(), name.to_owned()));
            }
            if inode.file_type() != FileType::Directory {
                bail!("{}: has no name", source.display());
            }
            return Ok((self.destination.clone(), OsString::from(".")));
        }
        let name = self.destination.file_name().context("the destination has no name")?;
        let parent = match self.destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok((parent, name.to_owned()))
    }
}
