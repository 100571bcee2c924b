//! `larder scrub`: every copy on every device is verified, and bad ones are repaired.

pub mod background;
mod cancel;
mod limit;
mod place;
mod record;
mod run;
mod shown;
mod start;
mod status;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Verify every copy on every device, and repair bad ones
#[derive(Debug, Subcommand)]
pub enum Scrub {
    Cancel(cancel::Cancel),
    Limit(limit::Limit),
    Resume(start::Resume),
    Start(start::Start),
    Status(status::Status),
}

impl Scrub {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Cancel(command) => command.run(global),
            Self::Limit(command) => command.run(global),
            Self::Resume(command) => command.run(global),
            Self::Start(command) => command.run(global),
            Self::Status(command) => command.run(global),
        }
    }
}
