//! `larder inspect`: what is on disk, as text, and where it belongs.

mod dump_super;
mod dump_tree;
mod inode_resolve;
mod logical_resolve;
mod map_swapfile;
mod min_dev_size;
mod rootid;
mod subvolid_resolve;
mod tree_name;
mod tree_stats;
mod tree_walk;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::Outcome;
use crate::global::Global;
use crate::target::mounted_path;

/// Look at what is on disk
#[derive(Debug, Subcommand)]
pub enum Inspect {
    DumpSuper(dump_super::DumpSuper),
    DumpTree(Box<dump_tree::DumpTree>),
    InodeResolve(inode_resolve::InodeResolve),
    LogicalResolve(logical_resolve::LogicalResolve),
    MapSwapfile(map_swapfile::MapSwapfile),
    MinDevSize(min_dev_size::MinDevSize),
    Rootid(rootid::Rootid),
    SubvolidResolve(subvolid_resolve::SubvolidResolve),
    TreeStats(tree_stats::TreeStats),
}

impl Inspect {
    pub fn writes_json(&self) -> bool {
        matches!(self, Self::MapSwapfile(_) | Self::MinDevSize(_) | Self::TreeStats(_))
    }

    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::DumpSuper(command) => command.run(),
            Self::DumpTree(command) => command.run(),
            Self::InodeResolve(command) => command.run(),
            Self::LogicalResolve(command) => command.run(),
            Self::MapSwapfile(command) => command.run(global),
            Self::MinDevSize(command) => command.run(global),
            Self::Rootid(command) => command.run(),
            Self::SubvolidResolve(command) => command.run(),
            Self::TreeStats(command) => command.run(global),
        }
    }
}

/// The name of `path` below what a user calls `place`.
fn below(place: &OsStr, path: &Path) -> PathBuf {
    let place = match mounted_path(place) {
        None if !place.as_bytes().windows(2).any(|two| two == b":/") => {
            OsString::from_vec([place.as_bytes(), b":/"].concat())
        }
        _ => place.to_owned(),
    };
    if path.as_os_str().is_empty() { place.into() } else { Path::new(&place).join(path) }
}
