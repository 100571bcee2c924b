//! `larder inspect`: what is on disk, as text.

mod dump_super;
mod dump_tree;
mod tree_name;
mod tree_walk;

use clap::Subcommand;

use super::Outcome;

/// Look at what is on disk
#[derive(Debug, Subcommand)]
pub enum Inspect {
    DumpSuper(dump_super::DumpSuper),
    DumpTree(Box<dump_tree::DumpTree>),
}

impl Inspect {
    pub fn run(self) -> Outcome {
        match self {
            Self::DumpSuper(command) => command.run(),
            Self::DumpTree(command) => command.run(),
        }
    }
}
