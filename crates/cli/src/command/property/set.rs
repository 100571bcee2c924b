//! `larder property set`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::known::{Known, Object};
use super::mounted::Mounted;
use crate::outcome::Outcome;
use crate::source::PathSource;

/// Set a property of a file, a subvolume or the file system
///
/// Examples:
///   larder property set disk.img:/snapshots/monday ro true
///   larder property set disk.img:/var/log compression zstd
///   larder property set disk.img label pantry
///   larder property set ~/mnt/snapshots/monday ro true
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Set {
    /// Make even a received subvolume writable; its received uuid goes away
    #[arg(short, long)]
    force: bool,
    /// What the path stands for, if it can be several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    object: Option<Object>,
    #[command(flatten)]
    source: PathSource,
    /// A file, directory or subvolume; the top level for the file system
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
    /// ro, label or compression
    #[arg(value_name = "NAME")]
    name: String,
    /// true or false; a label; zlib, lzo, zstd, none, or nothing
    #[arg(value_name = "VALUE")]
    value: OsString,
}

impl Set {
    pub fn run(self) -> Outcome {
        let property = Known::find(&self.name)?;
        let named = || format!("{}: {}", self.path.display(), self.name);
        if let Some(path) = self.source.mounted_path(&self.path)? {
            let bearer = Mounted::open(path)?;
            let shown = || self.path.display().to_string();
            property.expect_of(&bearer, self.object).with_context(shown)?;
            let set = property.set(&bearer, &self.value, self.force);
            set.with_context(named)?;
            return Ok(ExitCode::SUCCESS);
        }
        self.source.change(&self.path, |writing| {
            let inode = writing.start.resolve(writing.path(&self.path)?)?;
            let shown = || self.path.display().to_string();
            property.expect_of(&inode, self.object).with_context(shown)?;
            let set = property.set(&inode, &self.value, self.force);
            set.with_context(|| format!("{}: {}", shown(), self.name)).map(|()| 0)
        })
    }
}
