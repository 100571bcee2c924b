//! `larder rescue`: when a file system is damaged.

mod find_roots;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look for what is left of a damaged file system
#[derive(Debug, Subcommand)]
pub enum Rescue {
    FindRoots(find_roots::FindRoots),
}

impl Rescue {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::FindRoots(command) => command.run(global),
        }
    }
}
