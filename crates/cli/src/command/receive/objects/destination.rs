//! The directory that subvolumes are received in, in an image or on a mount.

use std::io::Read;
use std::ops::ControlFlow;

use larder::{ReceiveError, ReceiveEvent, ReceiveOptions, Received, SubvolumeInfo};
use larder_objects::streams::{Name, Origin, StreamId};

use super::note::Note;

pub type Observe<'a> = &'a mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>;

/// The directory that subvolumes are received in.
pub trait Destination {
    /// How streams name the read-only subvolumes of the file system.
    fn there(&self) -> anyhow::Result<Vec<Origin>>;

    /// What has this name in the directory.
    fn find(&self, name: &Name) -> anyhow::Result<AtName>;

    /// Deletes a subvolume of the directory.
    fn delete(&self, name: &[u8]) -> anyhow::Result<()>;

    /// The positions of the checkpoints of this stream in the directory.
    fn checkpoints(&self, stream: StreamId) -> anyhow::Result<Vec<u64>>;

    /// What was noted last.
    fn noted(&self) -> anyhow::Result<Option<Note>>;

    /// Notes which subvolume is received from now on, or that none is. Durable on return.
    fn note(&mut self, note: Option<&Note>) -> anyhow::Result<()>;

    fn receive(
        &self,
        input: Box<dyn Read + Send>,
        options: &ReceiveOptions,
        observe: Observe<'_>,
    ) -> Result<Received, ReceiveError>;

    /// The name as users write it.
    fn shown(&self, name: &Name) -> String;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtName {
    Nothing,
    /// A subvolume that can be changed and was not received.
    Unfinished,
    Other,
}

impl AtName {
    pub fn of(is_read_only: bool, received_uuid: larder::Uuid) -> Self {
        if is_read_only || !received_uuid.is_nil() { Self::Other } else { Self::Unfinished }
    }
}

/// How streams name the subvolume: as what it was received from, and as itself.
pub fn origins(info: &SubvolumeInfo) -> impl Iterator<Item = Origin> + use<> {
    let origin = |uuid: larder::Uuid, ctransid| Origin { uuid: *uuid.as_bytes(), ctransid };
    let received =
        (!info.received_uuid.is_nil()).then(|| origin(info.received_uuid, info.send_generation));
    let own = origin(info.uuid, info.change_generation);
    // As a later send of this one names it.
    let sent = received.map(|received| Origin { ctransid: own.ctransid, ..received });
    let is_source = info.is_read_only && !info.is_being_deleted;
    [Some(own), received, sent].into_iter().flatten().filter(move |_| is_source)
}
