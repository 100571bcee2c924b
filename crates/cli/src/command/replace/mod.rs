//! `larder replace`: another device takes the place of one.

mod cancel;
mod resume;
mod start;
mod status;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Replace a device of a file system by another
#[derive(Debug, Subcommand)]
pub enum Replace {
    Cancel(cancel::Cancel),
    Resume(resume::Resume),
    Start(start::Start),
    Status(status::Status),
}

impl Replace {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Cancel(command) => command.run(),
            Self::Resume(command) => command.run(),
            Self::Start(command) => command.run(),
            Self::Status(command) => command.run(global),
        }
    }
}
