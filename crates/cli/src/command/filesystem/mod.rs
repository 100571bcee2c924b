//! `larder filesystem`: the file system as a whole.

mod df;
mod du;
mod label;
mod mkswapfile;
mod redundancy;
pub mod resize;
mod show;
mod sync;
mod usage;

use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look at a whole file system
#[derive(Debug, Subcommand)]
pub enum Filesystem {
    Df(df::Df),
    Du(du::Du),
    Label(label::Label),
    Mkswapfile(mkswapfile::Mkswapfile),
    Redundancy(redundancy::Redundancy),
    Resize(resize::Resize),
    Show(show::Show),
    Sync(sync::Sync),
    Usage(usage::Usage),
}

impl Filesystem {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Df(command) => command.run(global),
            Self::Du(command) => command.run(global),
            Self::Label(command) => command.run(global),
            Self::Mkswapfile(command) => command.run(global),
            Self::Redundancy(command) => command.run(global),
            Self::Resize(command) => command.run(),
            Self::Show(command) => command.run(global),
            Self::Sync(command) => command.run(),
            Self::Usage(command) => command.run(global),
        }
    }
}
