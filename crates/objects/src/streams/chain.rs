//! Which streams need which others.

use std::collections::HashMap;

use uuid::Uuid;

use super::catalogue::{Catalogue, Origin, Stream, StreamId};
use crate::error::ObjectsError;
use crate::store::Store;

impl Catalogue {
    /// The streams that make `wanted` out of the snapshots `there`, those that others need first.
    /// Empty if it is there.
    ///
    /// A snapshot that returned to its source's file system is known there by another transaction:
    /// where nothing has the needed state, its uuid is enough, as for a receiver.
    ///
    /// # Errors
    /// [`ObjectsError::NotThere`] if a snapshot is needed that nothing makes. It names `store`.
    pub fn chain<'a>(
        &'a self,
        store: &dyn Store,
        wanted: &'a Stream,
        there: &'a [Origin],
    ) -> Result<Vec<&'a Stream>, ObjectsError> {
        if there.contains(&wanted.description.snapshot) {
            return Ok(Vec::new());
        }
        let makers = Makers::new(self, there);
        if makers.round(wanted).is_none() {
            let (stream, need) = makers.first_gap(wanted);
            return Err(ObjectsError::NotThere {
                store: store.name().to_owned(),
                name: stream.name.to_string(),
                uuid: Uuid::from_bytes(need.uuid).to_string(),
            });
        }
        let mut chain = vec![wanted];
        let mut at = 0;
        while let Some(&stream) = chain.get(at) {
            for need in stream.description.needs() {
                let maker = makers.best(need, makers.round(stream));
                chain.extend(maker.filter(|maker| !chain.iter().any(|it| it.id == maker.id)));
            }
            at += 1;
        }
        chain.sort_by_key(|stream| makers.round(stream));
        Ok(chain)
    }

    /// The snapshots that `stream` needs and no stream makes.
    pub fn gaps<'a>(&'a self, stream: &'a Stream) -> impl Iterator<Item = &'a Origin> {
        stream.description.needs().filter(|need| self.maker(&need.uuid).is_none())
    }

    /// The newest stream of the snapshot with this uuid.
    pub fn maker(&self, uuid: &[u8; 16]) -> Option<&Stream> {
        self.streams.iter().rfind(|stream| stream.description.snapshot.uuid == *uuid)
    }
}

/// What makes which snapshot.
struct Makers<'a> {
    there: &'a [Origin],
    by_uuid: HashMap<[u8; 16], Vec<&'a Stream>>,
    /// After so many others a stream can be received. Those that never can be are left out.
    rounds: HashMap<StreamId, usize>,
}

impl<'a> Makers<'a> {
    fn new(catalogue: &'a Catalogue, there: &'a [Origin]) -> Self {
        let mut by_uuid: HashMap<_, Vec<_>> = HashMap::new();
        for stream in &catalogue.streams {
            by_uuid.entry(stream.description.snapshot.uuid).or_default().push(stream);
        }
        let mut makers = Self { there, by_uuid, rounds: HashMap::new() };
        let mut left: Vec<_> = catalogue.streams.iter().collect();
        for round in 0.. {
            let is_ready = |stream: &&Stream| {
                stream.description.needs().all(|need| makers.has(need, usize::MAX))
            };
            let (ready, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
            if ready.is_empty() {
                break;
            }
            makers.rounds.extend(ready.iter().map(|stream| (stream.id, round)));
            left = rest;
        }
        makers
    }

    fn round(&self, stream: &Stream) -> Option<usize> {
        self.rounds.get(&stream.id).copied()
    }

    fn is_there(&self, need: &Origin) -> bool {
        self.there.iter().any(|there| there.uuid == need.uuid)
    }

    fn has(&self, need: &Origin, before: usize) -> bool {
        self.is_there(need) || self.streams(need, before).next().is_some()
    }

    /// The streams that make a snapshot with the uuid of `need`, and can be received before the
    /// round `before`.
    fn streams(&self, need: &Origin, before: usize) -> impl Iterator<Item = &'a Stream> {
        let streams = self.by_uuid.get(&need.uuid).into_iter().flatten().copied();
        streams.filter(move |stream| self.round(stream).is_some_and(|round| round < before))
    }

    /// The stream to receive for `need`, before the round `before`. `None` if the snapshot is
    /// there.
    fn best(&self, need: &Origin, before: Option<usize>) -> Option<&'a Stream> {
        if self.there.contains(need) {
            return None;
        }
        let streams = self.streams(need, before.unwrap_or(usize::MAX));
        let is_exact = |stream: &&Stream| stream.description.snapshot == *need;
        let best = streams.min_by_key(|stream| (!is_exact(stream), self.round(stream)));
        best.filter(|best| is_exact(best) || !self.is_there(need))
    }

    /// A snapshot that nothing makes, on the way to `wanted`, and the stream that needs it.
    fn first_gap(&self, wanted: &'a Stream) -> (&'a Stream, Origin) {
        let (mut seen, mut at) = (vec![wanted], 0);
        while let Some(&stream) = seen.get(at) {
            let missing = |need: &&Origin| !self.has(need, usize::MAX);
            for need in stream.description.needs().filter(missing) {
                let Some(makers) = self.by_uuid.get(&need.uuid) else { return (stream, *need) };
                for maker in makers {
                    if !seen.iter().any(|it| it.id == maker.id) {
                        seen.push(maker);
                    }
                }
            }
            at += 1;
        }
        // Only streams that need each other are left.
        let need = wanted.description.needs().next().copied();
        (wanted, need.unwrap_or(wanted.description.snapshot))
    }
}
