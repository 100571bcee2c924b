//! Receiving streams that are objects, in the order in which they build on each other.
//!
//! # Invariants
//! - A subvolume is removed only if a durable note in the target says that larder was receiving it,
//!   it can be changed, and has no received uuid. The note is written while nothing has its name.
//! - A checkpoint has the random id of its stream in its name, so that no other snapshot is taken for
//!   one. It is removed when the subvolume is complete, when there is a later checkpoint, or when the
//!   next command in the target receives another stream.
//! - The note stays as long as there are checkpoints of its stream.

mod image;
mod mounted;
mod note;
mod receiving;

use std::ffi::OsStr;
use std::io::Read;
use std::ops::ControlFlow;
use std::process::ExitCode;

use larder::{ReceiveError, ReceiveEvent, ReceiveOptions, Received, SubvolumeInfo};
use larder_objects::streams::{Catalogue, Name, Origin, StreamId};
use larder_objects::{Address, ObjectsError};

use self::image::Image;
use self::mounted::Mounted;
use self::note::Note;
use self::receiving::Receiving;
use super::{Receive, Watch};
use crate::command::Outcome;
use crate::command::objects::store;
use crate::told::Detail;

type Observe<'a> = &'a mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>;

/// The directory that subvolumes are received in.
trait Destination {
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
enum AtName {
    Nothing,
    /// A subvolume that can be changed and was not received.
    Unfinished,
    Other,
}

impl AtName {
    fn of(is_read_only: bool, received_uuid: larder::Uuid) -> Self {
        if is_read_only || !received_uuid.is_nil() { Self::Other } else { Self::Unfinished }
    }
}

impl Receive {
    pub(super) fn receive_objects(
        &self,
        address: &Address,
        target: &OsStr,
        detail: Option<Detail>,
    ) -> Outcome {
        let store = store(address)?;
        let catalogue = Catalogue::load(&*store)?;
        let wanted = match &self.stream {
            Some(text) => catalogue.stream(&*store, text)?,
            None => catalogue
                .streams
                .last()
                .ok_or_else(|| ObjectsError::NoStreams { store: store.name().to_owned() })?,
        };
        let mut receiving = Receiving {
            store,
            options: self.options(),
            every_bytes: self.checkpoint_every,
            detail,
            watch: Watch::new(self.quiet)?,
            destination: match self.mounted_directory(target)? {
                Some(directory) => Box::new(Mounted::open(directory)?),
                None => Box::new(Image::open(self.source.write(target)?, target)?),
            },
        };
        let left = receiving.clean_up()?;
        let there = receiving.destination.there()?;
        let chain = catalogue.chain(&*receiving.store, wanted, &there)?;
        if chain.is_empty() && !self.quiet {
            eprintln!("{}: is there already", wanted.name);
        }
        if let Some(left) = left
            && chain.first().is_none_or(|stream| stream.id != left.stream)
        {
            receiving.discard(&left)?;
        }
        for stream in chain {
            receiving.receive(stream)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How streams name the subvolume: as what it was received from, and as itself.
fn origins(info: &SubvolumeInfo) -> impl Iterator<Item = Origin> + use<> {
    let origin = |uuid: larder::Uuid, ctransid| Origin { uuid: *uuid.as_bytes(), ctransid };
    let received =
        (!info.received_uuid.is_nil()).then(|| origin(info.received_uuid, info.send_generation));
    let own = origin(info.uuid, info.change_generation);
    // As a later send of this one names it.
    let sent = received.map(|received| Origin { ctransid: own.ctransid, ..received });
    let is_source = info.is_read_only && !info.is_being_deleted;
    [Some(own), received, sent].into_iter().flatten().filter(move |_| is_source)
}
