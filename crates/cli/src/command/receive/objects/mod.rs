//! Receiving streams that are objects, in the order in which they build on each other.
//!
//! # Invariants
//! - A subvolume is removed only if a durable note in the target says that larder was receiving it,
//!   it can be changed, and has no received uuid. The note is written while nothing has its name.
//! - The note stays as long as there are checkpoints of its stream. They are removed after the
//!   subvolume is complete, or if the next receive is of another stream.

mod image;
mod mounted;
mod note;

use std::ffi::OsStr;
use std::io::{Cursor, Read};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use larder::{
    ReceiveCheckpoints, ReceiveError, ReceiveEvent, ReceiveOptions, Received, SubvolumeInfo,
    stream_prologue,
};
use larder_objects::streams::{Catalogue, Download, Name, Origin, Pace, Stream, StreamId};
use larder_objects::{Address, ObjectsError, Store};

use self::image::Image;
use self::mounted::Mounted;
use self::note::Note;
use super::{Receive, Watch};
use crate::command::Outcome;
use crate::command::objects::store;
use crate::reason::in_words;
use crate::told::{Detail, Told};
use crate::units::Units;

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

struct Receiving {
    store: Arc<dyn Store>,
    options: ReceiveOptions,
    /// Take a checkpoint after so many bytes of a stream.
    every_bytes: u64,
    detail: Option<Detail>,
    watch: Watch,
    destination: Box<dyn Destination>,
}

impl Receiving {
    /// Removes the subvolume that an earlier command has left unfinished. Returns its note if it has
    /// checkpoints.
    fn clean_up(&mut self) -> anyhow::Result<Option<Note>> {
        let Some(note) = self.destination.noted()? else { return Ok(None) };
        let is_removed = self.remove_unfinished(&note.name)?;
        if !self.destination.checkpoints(note.stream)?.is_empty() {
            return Ok(Some(note));
        }
        self.destination.note(None)?;
        if is_removed {
            self.say_removed(&note);
        }
        Ok(None)
    }

    /// Removes the checkpoints of a stream that nobody goes on with.
    fn discard(&mut self, note: &Note) -> anyhow::Result<()> {
        let is_complete = self.destination.find(&note.name)? == AtName::Other;
        self.remove_checkpoints(note.stream, None)?;
        self.destination.note(None)?;
        if !is_complete {
            self.say_removed(note);
        }
        Ok(())
    }

    fn say_removed(&self, note: &Note) {
        let shown = self.destination.shown(&note.name);
        self.watch.say(&format!("{shown}: was left unfinished, and was removed"));
    }

    /// Removes the noted subvolume, unless it is complete. Returns whether it was there.
    fn remove_unfinished(&self, name: &Name) -> anyhow::Result<bool> {
        let is_unfinished = self.destination.find(name)? == AtName::Unfinished;
        if is_unfinished {
            self.destination.delete(name.as_bytes())?;
        }
        Ok(is_unfinished)
    }

    /// Removes the checkpoints of a stream, except the one at this position.
    fn remove_checkpoints(&self, stream: StreamId, kept: Option<u64>) -> anyhow::Result<()> {
        for position in self.destination.checkpoints(stream)? {
            if Some(position) != kept {
                let name = ReceiveCheckpoints::name(stream.number(), position);
                self.destination.delete(name.as_bytes())?;
            }
        }
        Ok(())
    }

    /// The last checkpoint of a stream. The others are removed.
    fn last_checkpoint(&self, stream: &Stream) -> anyhow::Result<Option<u64>> {
        let positions = self.destination.checkpoints(stream.id)?.into_iter();
        let last = positions.filter(|position| *position <= stream.len_bytes).max();
        self.remove_checkpoints(stream.id, last)?;
        Ok(last)
    }

    fn receive(&mut self, stream: &Stream) -> anyhow::Result<()> {
        let note = Note::of(stream);
        let shown = self.destination.shown(&note.name);
        if self.destination.find(&note.name)? != AtName::Nothing {
            bail!(
                "{shown}: exists, and is not the snapshot of the stream {}; rename it, or receive \
                 into another directory",
                stream.id
            );
        }
        let from = self.last_checkpoint(stream)?;
        let input = self.open(stream, from)?;
        self.destination.note(Some(&note))?;
        self.watch.begin(Some(stream.len_bytes));
        from.inspect(|from| self.watch.say(&format!("{shown}: goes on {}", at(*from, stream))));
        let error = match self.receive_from(input, stream, from) {
            Ok(()) => {
                self.remove_checkpoints(stream.id, None)?;
                return self.destination.note(None);
            }
            Err(error) => error,
        };
        let unsure = || format!("{error}; {shown} may be unfinished");
        let is_removed = self.remove_unfinished(&note.name).with_context(unsure)?;
        if let Some(last) = self.last_checkpoint(stream).with_context(unsure)? {
            let at = at(last, stream);
            bail!("{error}; {shown} is unfinished: run the command again to go on {at}");
        }
        self.destination.note(None).with_context(unsure)?;
        if is_removed {
            bail!(
                "{error}; {shown} was unfinished, and was removed: run the command again to go on"
            )
        }
        bail!(error)
    }

    /// The input of a receive that begins with the checkpoint at `from`.
    fn open(&self, stream: &Stream, from: Option<u64>) -> anyhow::Result<Box<dyn Read + Send>> {
        let begin = |from, pace| Download::begin(Arc::clone(&self.store), stream, from, pace);
        let rest = begin(from.unwrap_or(0), Pace::default())?;
        let input: Box<dyn Read + Send> = match from {
            None => Box::new(rest),
            Some(_) => {
                let mut start = begin(0, Pace { at_once: 1, ..Pace::default() })?;
                Box::new(Cursor::new(stream_prologue(&mut start)?).chain(rest))
            }
        };
        Ok(match self.detail {
            Some(detail) => Box::new(Told::new(input, detail)),
            None => input,
        })
    }

    /// Receives the stream. Says what went wrong.
    fn receive_from(
        &mut self,
        input: Box<dyn Read + Send>,
        stream: &Stream,
        from: Option<u64>,
    ) -> Result<(), String> {
        let number = stream.id.number();
        let checkpoints =
            ReceiveCheckpoints { stream: number, every_bytes: self.every_bytes, from };
        let options = ReceiveOptions { checkpoints: Some(checkpoints), ..self.options };
        let (watch, destination) = (&mut self.watch, &*self.destination);
        let (mut other, mut last) = (None, from);
        let outcome = destination.receive(input, &options, &mut |event| match event {
            ReceiveEvent::Begins { name, .. } if name != stream.name.as_bytes() => {
                other = Some(super::shown(name));
                ControlFlow::Break(())
            }
            ReceiveEvent::Checkpoint(position) => {
                if let Some(earlier) = last.replace(position) {
                    let name = ReceiveCheckpoints::name(number, earlier);
                    // What stays is removed with the last one.
                    let _ = destination.delete(name.as_bytes());
                }
                watch.event(&event)
            }
            event => watch.event(&event),
        });
        match (outcome, other) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(other)) => {
                let (shown, id) = (destination.shown(&stream.name), stream.id);
                Err(format!("{shown}: the stream {id} is not of this snapshot but of {other}"))
            }
            (Err(error), None) => Err(in_words(&error.to_string())),
        }
    }
}

/// A position in a stream, for people.
fn at(position: u64, stream: &Stream) -> String {
    let [position, len] = [position, stream.len_bytes].map(|bytes| Units::default().show(bytes));
    format!("at {position} of {len}")
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
