//! `larder filesystem`: the file system as a whole.

mod df;
mod label;
mod show;
mod sync;
mod usage;

use clap::Subcommand;
use larder::SpaceKind;

use super::Outcome;
use crate::global::Global;

/// Look at a whole file system
#[derive(Debug, Subcommand)]
pub enum Filesystem {
    Df(df::Df),
    Label(label::Label),
    Show(show::Show),
    Sync(sync::Sync),
    Usage(usage::Usage),
}

impl Filesystem {
    pub fn writes_json(&self) -> bool {
        matches!(self, Self::Df(_))
    }

    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Df(command) => command.run(global),
            Self::Label(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Sync(command) => command.run(),
            Self::Usage(command) => command.run(),
        }
    }
}

/// The purpose of block groups, as btrfs-progs names it.
fn kind_name(kind: SpaceKind) -> &'static str {
    match kind {
        SpaceKind::Data => "Data",
        SpaceKind::System => "System",
        SpaceKind::Metadata => "Metadata",
        SpaceKind::DataAndMetadata => "Data+Metadata",
    }
}

/// A profile in the mixture of cases that btrfs-progs prints: `single`, `DUP`, `RAID1`, `RAID1C3`.
fn profile_name(profile: Option<larder::Profile>) -> String {
    match profile {
        None => "unknown".into(),
        Some(larder::Profile::Single) => "single".into(),
        Some(profile) => profile.name().to_ascii_uppercase(),
    }
}
