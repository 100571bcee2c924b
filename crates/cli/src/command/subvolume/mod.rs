//! `larder subvolume`: subvolumes and snapshots.

mod get_default;
mod list;
mod show;

use clap::Subcommand;

use super::Outcome;

/// Look at subvolumes and snapshots
#[derive(Debug, Subcommand)]
pub enum Subvolume {
    GetDefault(get_default::GetDefault),
    List(Box<list::List>),
    Show(show::Show),
}

impl Subvolume {
    pub fn run(self) -> Outcome {
        match self {
            Self::GetDefault(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
        }
    }
}

/// A uuid, or `-` for none.
fn uuid_or_dash(uuid: larder::Uuid) -> String {
    if uuid.is_nil() { "-".into() } else { uuid.to_string() }
}
