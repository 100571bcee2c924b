//! `larder property`: properties of files, subvolumes and file systems.

mod bearer;
mod find;
mod get;
mod known;
mod list;
mod mounted;
mod set;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look at properties and change them
#[derive(Debug, Subcommand)]
pub enum Property {
    Get(get::Get),
    List(list::List),
    Set(set::Set),
}

impl Property {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Get(command) => command.run(global),
            Self::List(command) => command.run(global),
            Self::Set(command) => command.run(),
        }
    }
}
