//! `larder inspect inode-resolve`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::global::Global;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{stdout, write_line};
use crate::print::{Name, write_json};
use crate::source::Source;
use crate::target::below;

/// Show the paths of an inode
///
/// Paths are below PATH, which is the root of a subvolume.
///
/// Examples:
///   larder inspect inode-resolve 257 disk.img:/home
///   larder inspect inode-resolve 257 ~/mnt/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct InodeResolve {
    /// Tell more, of which there is nothing
    #[arg(short)]
    verbose: bool,
    /// Number of the inode
    #[arg(value_parser = parse_number)]
    inode: u64,
    #[command(flatten)]
    source: Source,
    /// Something in an image, its path from the top level, or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

impl InodeResolve {
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystem, id) = self.source.overview_at(&self.path)?;
        let paths = filesystem.inode_paths(id, self.inode);
        let named = || format!("{}: inode {}", self.path.display(), self.inode);
        let paths = paths.with_context(named)?;
        let paths = paths.iter().map(|path| below(&self.path, path));
        if global.is_json() {
            let paths = paths.map(|path| (&path).into()).collect();
            let shown = Shown { inode: self.inode, root: id, paths };
            write_json(&mut stdout(), "inode-resolve", &shown)?;
            return Ok(ExitCode::SUCCESS);
        }
        for path in paths {
            write_line(&path)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct Shown {
    inode: u64,
    /// The subvolume.
    root: u64,
    paths: Vec<Name>,
}
