//! `larder subvolume`: subvolumes and snapshots.

mod create;
mod delete;
mod find_new;
mod get_default;
mod list;
mod mounted;
mod object;
mod retention;
mod set_default;
mod show;
mod snapshot;
mod sync;

use std::ffi::OsStr;

use anyhow::Context;
use clap::Subcommand;
use larder::{MountedFilesystem, Overview};

use self::mounted::subvolume_at;
use super::Outcome;
use crate::global::Global;
use crate::source::{Source, on_image};
use crate::target::Target;

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

/// The file system of `text`, and the id of the subvolume there.
fn subvolume_in(source: &Source, text: &OsStr) -> anyhow::Result<(Box<dyn Overview>, u64)> {
    if let Some(path) = source.mounted_path(text)? {
        let id = subvolume_at(path)?;
        return Ok((Box::new(MountedFilesystem::open(path)?), id));
    }
    let target = Target::parse(text);
    let filesystem = source.open(&target.image)?;
    let subvolume = filesystem.subvolume(target.path_os());
    let id = subvolume.with_context(|| on_image(&target.image))?.id();
    Ok((Box::new(filesystem), id))
}

/// A uuid, or `-` for none.
fn uuid_or_dash(uuid: larder::Uuid) -> String {
    if uuid.is_nil() { "-".into() } else { uuid.to_string() }
}
