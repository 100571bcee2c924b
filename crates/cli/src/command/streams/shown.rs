//! Streams as users see them.

use larder_objects::streams::{Catalogue, Stream};
use serde::Serialize;

use crate::print::Name;

/// A stream as JSON names it.
#[derive(Serialize)]
pub struct Named {
    id: String,
    name: Name,
}

impl Named {
    pub fn of(stream: &Stream) -> Self {
        let name = Name::of_bytes(stream.name.as_bytes());
        Self { id: stream.id.to_string(), name }
    }
}

/// A stream as text names it.
pub fn shown(stream: &Stream) -> String {
    format!("{} ({})", stream.name, stream.id)
}

pub fn uuid(bytes: [u8; 16]) -> String {
    larder::Uuid::from_bytes(bytes).to_string()
}

/// What is wrong with a stream that needs snapshots of which there is no stream.
pub fn gaps(catalogue: &Catalogue, stream: &Stream) -> Vec<String> {
    let missing = catalogue.gaps(stream).map(|origin| {
        let uuid = uuid(origin.uuid);
        format!("it builds on the snapshot {uuid}, of which there is no stream here")
    });
    missing.collect()
}
