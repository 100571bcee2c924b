//! `larder subvolume`: subvolumes and snapshots.

mod create;
mod delete;
mod get_default;
mod list;
mod mounted;
mod set_default;
mod show;
mod snapshot;
mod sync;

use clap::Subcommand;

use super::Outcome;
use crate::global::Global;

/// Subvolumes and snapshots
#[derive(Debug, Subcommand)]
pub enum Subvolume {
    Create(create::Create),
    Delete(delete::Delete),
    GetDefault(get_default::GetDefault),
    List(Box<list::List>),
    SetDefault(set_default::SetDefault),
    Show(show::Show),
    Snapshot(snapshot::Snapshot),
    Sync(sync::Sync),
}

impl Subvolume {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Create(command) => command.run(global),
            Self::Delete(command) => command.run(global),
            Self::GetDefault(command) => command.run(),
            Self::List(command) => command.run(),
            Self::SetDefault(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Snapshot(command) => command.run(global),
            Self::Sync(command) => command.run(),
        }
    }
}

/// A uuid, or `-` for none.
fn uuid_or_dash(uuid: larder::Uuid) -> String {
    if uuid.is_nil() { "-".into() } else { uuid.to_string() }
}
