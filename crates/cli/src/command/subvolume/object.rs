//! A subvolume as a JSON object, whose names are those of btrfs-progs.

use std::path::Path;

use larder::{SubvolumeInfo, Timestamp, Uuid};
use serde::Serialize;

use crate::print::{Name, local_time_with_zone};

/// What every command tells of a subvolume.
#[derive(Serialize)]
pub struct Object {
    id: u64,
    generation: u64,
    cgeneration: u64,
    parent: u64,
    top_level: u64,
    otime: Option<String>,
    parent_uuid: Option<String>,
    received_uuid: Option<String>,
    uuid: Option<String>,
    /// None of one that is being deleted.
    path: Option<Name>,
}

impl Object {
    /// `path` is empty for the top level.
    pub fn new(info: &SubvolumeInfo, path: &Path) -> Self {
        let parent = info.name.as_ref().map_or(0, |name| name.parent);
        let path = if path.as_os_str().is_empty() { Path::new("/") } else { path };
        Self {
            id: info.id,
            generation: info.generation,
            cgeneration: info.creation_generation,
            parent,
            top_level: parent,
            otime: time(info.creation_time),
            parent_uuid: uuid(info.parent_uuid),
            received_uuid: uuid(info.received_uuid),
            uuid: uuid(info.uuid),
            path: (!info.is_being_deleted).then(|| path.into()),
        }
    }
}

/// A time; none if it is not set.
pub fn time(time: Timestamp) -> Option<String> {
    (time.seconds != 0).then(|| local_time_with_zone(time.seconds))
}

fn uuid(uuid: Uuid) -> Option<String> {
    (!uuid.is_nil()).then(|| uuid.to_string())
}

/// A uuid, or `-` for none.
pub fn uuid_or_dash(uuid: Uuid) -> String {
    if uuid.is_nil() { "-".into() } else { uuid.to_string() }
}
