//! Receiving one stream after the other in a directory.

use std::io::{Cursor, Read};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, bail};
use larder::{ReceiveCheckpoints, ReceiveEvent, ReceiveOptions, stream_prologue};
use larder_objects::Store;
use larder_objects::streams::{Download, Name, Pace, Stream, StreamId};
use larder_platform::errno::in_words;
use larder_stream::Detail;

use super::destination::{AtName, Destination};
use super::note::Note;
use crate::command::receive::{Watch, shown};
use crate::told::Told;
use crate::units::Units;

/// Receives streams of a store in a directory.
pub(super) struct Receiving {
    pub(super) store: Arc<dyn Store>,
    pub(super) options: ReceiveOptions,
    /// Take a checkpoint after so many bytes of a stream.
    pub(super) every_bytes: u64,
    pub(super) detail: Option<Detail>,
    pub(super) watch: Watch,
    pub(super) destination: Box<dyn Destination>,
}

impl Receiving {
    /// Removes the subvolume that an earlier command has left unfinished. Returns its note if it has
    /// checkpoints.
    pub(super) fn clean_up(&mut self) -> anyhow::Result<Option<Note>> {
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
    pub(super) fn discard(&mut self, note: &Note) -> anyhow::Result<()> {
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

    pub(super) fn receive(&mut self, stream: &Stream) -> anyhow::Result<()> {
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
                other = Some(shown(name));
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
            (Err(error), None) => Err(in_words(&error)),
        }
    }
}

/// A position in a stream, for people.
fn at(position: u64, stream: &Stream) -> String {
    let [position, len] = [position, stream.len_bytes].map(|bytes| Units::default().show(bytes));
    format!("at {position} of {len}")
}
