//! Sending a stream to a store.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Pace;
use super::catalogue::{Catalogue, Description, Name, Stream, StreamId, Unfinished};
use super::in_order::InOrder;
use super::part::{Checksum, Index, IndexName, Part};
use crate::clock::Clock;
use crate::error::ObjectsError;
use crate::probe;
use crate::store::Store;

/// So often a sender says that it is at work.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60 * 60);

/// How a send begins.
#[derive(Debug)]
pub enum Begun {
    /// The stream has to be written.
    Upload(Box<Upload>),
    /// It is there.
    There(Stream),
}

/// A stream that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The stream, as it is in the catalogue.
    pub stream: Stream,
    /// Bytes that were there from an earlier attempt, and were not sent again.
    pub found_bytes: u64,
}

/// A stream that is being sent: a [`Write`] that takes the bytes of the stream. It is in the
/// catalogue once [`finish`](Self::finish) has returned. If that never happens, a later upload of
/// the same description goes on with the parts that are there.
#[derive(Debug)]
pub struct Upload {
    store: Arc<dyn Store>,
    clock: Clock,
    pace: Pace,
    registered: Unfinished,
    /// The parts of earlier attempts, and their lengths.
    there: Arc<HashMap<Part, u64>>,
    /// The part that is being filled.
    open: Vec<u8>,
    on_their_way: InOrder<Result<Sent, ObjectsError>>,
    checksums: Vec<Checksum>,
    len_bytes: u64,
    found_bytes: u64,
    last_sign: Duration,
}

/// A part that is in the store.
#[derive(Debug)]
struct Sent {
    checksum: Checksum,
    /// Its bytes that an earlier attempt had sent.
    found_bytes: u64,
}

impl Upload {
    /// Begins or resumes to send the stream `description` of a snapshot called `name`.
    ///
    /// # Errors
    /// [`ObjectsError::OnlyForReading`], [`ObjectsError::Unconditional`], and those of the store.
    pub fn begin(
        store: Arc<dyn Store>,
        name: &Name,
        description: &Description,
        pace: Pace,
    ) -> Result<Begun, ObjectsError> {
        let catalogue = Catalogue::find(&*store)?;
        if let Some(stream) = catalogue.iter().find_map(|found| found.with(description)) {
            return Ok(Begun::There(stream.clone()));
        }
        let clock = probe::conditions(&*store)?;
        let new = Unfinished::new(name, description, clock.now());
        let (_, registered) =
            Catalogue::change(&*store, |catalogue| Ok(register(catalogue, &new)))?;
        let registered = match registered {
            Registered::There(stream) => return Ok(Begun::There(stream)),
            Registered::Unfinished(unfinished) => unfinished,
        };
        let listed = store.list(&Part::folder(registered.id))?;
        let there = listed.iter().filter_map(|it| Some((Part::parse(&it.name)?, it.len_bytes)));
        Ok(Begun::Upload(Box::new(Self {
            last_sign: store.timer().now(),
            store,
            clock,
            pace,
            registered,
            there: Arc::new(there.collect()),
            open: Vec::new(),
            on_their_way: InOrder::new(pace.at_once),
            checksums: Vec::new(),
            len_bytes: 0,
            found_bytes: 0,
        })))
    }

    /// Puts the stream into the catalogue, once all that was written is in the store.
    ///
    /// # Errors
    /// [`ObjectsError::Pruned`], and those of the store.
    pub fn finish(mut self) -> Result<Uploaded, ObjectsError> {
        if !self.open.is_empty() {
            self.send_part()?;
        }
        while let Some(sent) = self.on_their_way.next() {
            self.note(&sent?);
        }
        let parts = self.parts();
        let index = Index::new(mem::take(&mut self.checksums)).encode();
        let stream = Stream {
            id: self.registered.id,
            name: self.registered.name.clone(),
            description: self.registered.description.clone(),
            time: self.clock.now(),
            len_bytes: self.len_bytes,
            part_bytes: self.pace.part_bytes as u64,
            index: Checksum::of(&index),
        };
        if !index.is_empty() {
            let name = IndexName { stream: stream.id, checksum: stream.index }.name();
            self.store.create(&name, index)?;
        }
        let (_, in_catalogue) =
            Catalogue::change(&*self.store, |catalogue| self.publish(catalogue, &stream))?;
        if in_catalogue == stream {
            self.delete_stale(&parts);
        }
        Ok(Uploaded { stream: in_catalogue, found_bytes: self.found_bytes })
    }

    fn parts(&self) -> HashSet<Part> {
        let numbered = (0..).zip(&self.checksums);
        numbered.map(|(number, &checksum)| self.part(number, checksum)).collect()
    }

    fn part(&self, number: u64, checksum: Checksum) -> Part {
        Part { stream: self.registered.id, number, checksum }
    }

    /// Replaces the registration by the stream. Another sender of the same may have been faster.
    fn publish(&self, catalogue: &mut Catalogue, stream: &Stream) -> Result<Stream, ObjectsError> {
        if let Some(there) = catalogue.with(&stream.description) {
            return Ok(there.clone());
        }
        let pruned = || ObjectsError::Pruned { store: self.store.name().to_owned() };
        let at = catalogue.unfinished.iter().position(|it| it.id == stream.id);
        catalogue.unfinished.remove(at.ok_or_else(pruned)?);
        catalogue.streams.push(stream.clone());
        Ok(stream.clone())
    }

    /// Deletes parts of earlier attempts that had another content.
    fn delete_stale(&self, parts: &HashSet<Part>) {
        for stale in self.there.keys().filter(|part| !parts.contains(part)) {
            if let Err(error) = self.store.delete(&stale.name()) {
                tracing::warn!("{error}; 'larder streams prune' deletes it later");
                return;
            }
        }
    }

    /// Sends the open part, once there is room for one more on its way.
    fn send_part(&mut self) -> Result<(), ObjectsError> {
        if self.on_their_way.is_full()
            && let Some(sent) = self.on_their_way.next()
        {
            self.note(&sent?);
        }
        if self.store.timer().elapsed(self.last_sign) >= SIGN_OF_LIFE {
            self.show_life()?;
        }
        let content = Bytes::from(mem::take(&mut self.open));
        let number = self.len_bytes / self.pace.part_bytes as u64;
        self.len_bytes += content.len() as u64;
        let (store, there, id) =
            (Arc::clone(&self.store), Arc::clone(&self.there), self.registered.id);
        self.on_their_way.begin(move || send(&*store, &there, id, number, content));
        Ok(())
    }

    fn note(&mut self, sent: &Sent) {
        self.checksums.push(sent.checksum);
        self.found_bytes += sent.found_bytes;
    }

    /// Keeps the parts of a long send from being pruned as those of an interrupted one.
    fn show_life(&mut self) -> Result<(), ObjectsError> {
        let (id, now) = (self.registered.id, self.clock.now());
        Catalogue::change(&*self.store, |catalogue| {
            if let Some(mine) = catalogue.unfinished.iter_mut().find(|it| it.id == id) {
                mine.time = now;
            }
            Ok(())
        })?;
        self.last_sign = self.store.timer().now();
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.capacity() == 0 {
            self.open.reserve_exact(self.pace.part_bytes);
        }
        let len = bytes.len().min(self.pace.part_bytes - self.open.len());
        self.open.extend_from_slice(&bytes[..len]);
        if self.open.len() == self.pace.part_bytes {
            self.send_part()?;
        }
        Ok(len)
    }

    /// Does nothing: only a whole stream is of use.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Registered {
    There(Stream),
    Unfinished(Unfinished),
}

/// Registers a send, or finds the one that was interrupted.
fn register(catalogue: &mut Catalogue, new: &Unfinished) -> Registered {
    if let Some(stream) = catalogue.with(&new.description) {
        return Registered::There(stream.clone());
    }
    let known = catalogue.unfinished.iter().position(|known| known.description == new.description);
    let at = known.unwrap_or_else(|| {
        catalogue.unfinished.push(new.clone());
        catalogue.unfinished.len() - 1
    });
    let mine = &mut catalogue.unfinished[at];
    (mine.name, mine.time) = (new.name.clone(), new.time);
    Registered::Unfinished(mine.clone())
}

/// Creates a part, unless it is there.
fn send(
    store: &dyn Store,
    there: &HashMap<Part, u64>,
    stream: StreamId,
    number: u64,
    content: Bytes,
) -> Result<Sent, ObjectsError> {
    let part = Part { stream, number, checksum: Checksum::of(&content) };
    let len_bytes = content.len() as u64;
    let mut sent = Sent { checksum: part.checksum, found_bytes: 0 };
    match there.get(&part) {
        Some(found) if *found == len_bytes => sent.found_bytes = len_bytes,
        Some(_) => store.mend(&part.name(), content)?,
        None => store.create(&part.name(), content)?,
    }
    Ok(sent)
}
