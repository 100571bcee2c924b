//! `larder balance`: block groups are emptied, or get other profiles.

mod control;
mod place;
mod shown;
mod start;
mod status;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Make room by moving block groups together, and change profiles
#[derive(Debug, Subcommand)]
pub enum Balance {
    Cancel(control::Cancel),
    Pause(control::Pause),
    Resume(start::Resume),
    Start(start::Start),
    Status(status::Status),
}

impl Balance {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Cancel(command) => command.run(),
            Self::Pause(command) => command.run(),
            Self::Resume(command) => command.run(global),
            Self::Start(command) => command.run(global),
            Self::Status(command) => command.run(global),
        }
    }
}
