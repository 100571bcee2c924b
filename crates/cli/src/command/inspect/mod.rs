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

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

pub use tree_name::title;

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
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::DumpSuper(command) => command.run(global),
            Self::DumpTree(command) => command.run(),
            Self::InodeResolve(command) => command.run(global),
            Self::LogicalResolve(command) => command.run(global),
            Self::MapSwapfile(command) => command.run(global),
            Self::MinDevSize(command) => command.run(global),
            Self::Rootid(command) => command.run(global),
            Self::SubvolidResolve(command) => command.run(global),
            Self::TreeStats(command) => command.run(global),
        }
    }
}
