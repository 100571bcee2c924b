//! `larder subvolume`: subvolumes and snapshots.

mod create;
mod delete;
mod find_new;
mod found;
mod get_default;
mod list;
mod mounted;
mod object;
mod retention;
mod set_default;
mod show;
mod snapshot;
mod sync;

use anyhow::Context;
use clap::Subcommand;

use crate::global::Global;
use crate::outcome::Outcome;

/// Subvolumes and snapshots
#[derive(Debug, Subcommand)]
pub enum Subvolume {
    Create(create::Create),
    Delete(delete::Delete),
    FindNew(find_new::FindNew),
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
            Self::FindNew(command) => {
                let named = command.path.display().to_string();
                command.run(global).context(named)
            }
            Self::GetDefault(command) => {
                let named = command.image.display().to_string();
                command.run(global).context(named)
            }
            Self::List(command) => {
                let named = command.target.display().to_string();
                command.run(global).context(named)
            }
            Self::SetDefault(command) => command.run(),
            Self::Show(command) => command.run(global),
            Self::Snapshot(command) => command.run(global),
            Self::Sync(command) => command.run(),
        }
    }
}
