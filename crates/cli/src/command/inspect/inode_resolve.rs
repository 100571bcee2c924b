//! `larder inspect inode-resolve`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::below;
use crate::command::Outcome;
use crate::operand::parse_number;
use crate::output::stdout;
use crate::source::Source;

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
    pub fn run(self) -> Outcome {
        let (filesystem, id) = self.source.overview_at(&self.path)?;
        let paths = filesystem.inode_paths(id, self.inode);
        let named = || format!("{}: inode {}", self.path.display(), self.inode);
        for path in paths.with_context(named)? {
            writeln!(stdout(), "{}", below(&self.path, &path).display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
