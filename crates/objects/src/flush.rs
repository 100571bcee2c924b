//! Flushes: each is one object, which makes the device's next state.
//!
//! ```text
//!   magic 8, version, id, writer 16
//!   1, the state, segments since the flush before, own content: deltas, length, packed content,
//!      and in version 2 how much of a journal the state has
//!   or 0, who has ended the writing of this epoch
//!   checksum 4
//! ```
//!
//! # Invariants
//! - The flushes of an epoch have successive numbers. The writer creates one after the store has the
//!   one before, and all segments that it names.
//! - Whoever creates the object with the next number says what comes next: the writer its next
//!   state, or a writer that follows it the end. After an end there is no flush of that epoch.
//! - None is deleted before a manifest has what it says. An end stays for ever: the writer that it
//!   stops may sleep for long.

use bytes::Bytes;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::error::ObjectsError;
use crate::fetch::understood;
use crate::id::ObjectId;
use crate::manifest::TailSegment;
use crate::map::Delta;
use crate::packing;
use crate::states::State;
use crate::store::{Problem, Store};

const MAGIC: &[u8; 8] = b"LarderOF";
/// The version of those that say how much of a journal they have; others are of the one before.
const VERSION: u64 = 2;

/// The most content that a flush has itself, in bytes: it takes one chunk of the cache, and less.
pub(crate) const MOST_CONTENT_BYTES: usize = 512 << 10;

/// What the object with the next number says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Flush(Flush),
    /// Another writer follows.
    End {
        by: String,
    },
}

/// A state, and what changed since the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    pub(crate) state: State,
    pub(crate) segments: Vec<TailSegment>,
    /// What the flush's own content changed, after its segments.
    pub(crate) deltas: Vec<Delta>,
    pub(crate) content: Bytes,
    /// How much of the writer's journal the state has, if there is one.
    pub(crate) journaled: Option<u64>,
}

impl Next {
    /// The object with the number `id`, of the writer `writer`.
    pub(crate) fn encode(&self, id: ObjectId, writer: &[u8; 16]) -> Bytes {
        let mut to = Encoder::default();
        to.raw(MAGIC);
        let is_journaled = matches!(self, Self::Flush(Flush { journaled: Some(_), .. }));
        to.number(if is_journaled { VERSION } else { VERSION - 1 });
        to.number(id.raw());
        to.raw(writer);
        match self {
            Self::End { by } => {
                to.number(0);
                to.text(by);
            }
            Self::Flush(flush) => {
                to.number(1);
                flush.encode(&mut to);
            }
        }
        to.sealed().into()
    }

    /// What the object `id` says, and the writer of its epoch.
    fn decode(bytes: &[u8], id: ObjectId) -> Result<(Self, [u8; 16]), Malformed> {
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed("it is no flush of larder"));
        }
        let mut from = Decoder::unsealed(bytes)?;
        from.raw(MAGIC.len())?;
        let version = from.number()?;
        if !(VERSION - 1..=VERSION).contains(&version) {
            return Err(Malformed("a newer version of larder wrote it"));
        }
        if from.number()? != id.raw() {
            return Err(Malformed("it is another flush"));
        }
        let writer = from.array()?;
        let next = match from.number()? {
            0 => Self::End { by: from.text()? },
            _ => Self::Flush(Flush::decode(&mut from, version == VERSION)?),
        };
        from.end()?;
        Ok((next, writer))
    }

    /// Reads the object `id` of the writer `writer`, and its length.
    pub(crate) fn read(
        store: &dyn Store,
        id: ObjectId,
        writer: &[u8; 16],
    ) -> Result<(Self, u64), ObjectsError> {
        fetched(store, id, |bytes| match Self::decode(bytes, id)? {
            (next, found) if found == *writer => Ok((next, bytes.len() as u64)),
            _ => Err(Malformed("it is of another writer than the manifest names")),
        })
    }
}

impl Next {
    /// Reads the object `id`, whoever wrote it, and its writer.
    pub(crate) fn read_any(
        store: &dyn Store,
        id: ObjectId,
    ) -> Result<(Self, [u8; 16]), ObjectsError> {
        fetched(store, id, |bytes| Self::decode(bytes, id))
    }

    /// Whether the object `id`, which a list named, may be the end of an epoch.
    pub(crate) fn may_be_end(store: &dyn Store, id: ObjectId) -> Result<bool, ObjectsError> {
        match Self::read_any(store, id) {
            Ok((next, _)) => Ok(matches!(next, Self::End { .. })),
            // What nobody understands stops a writer as well.
            Err(ObjectsError::Damaged { .. }) => Ok(true),
            // It has gone, or the reply is wrong.
            Err(ObjectsError::Store(error)) if error.problem == Problem::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Flush {
    fn encode(&self, to: &mut Encoder) {
        to.number(self.state.number);
        to.number(self.state.time);
        TailSegment::encode(&self.segments, to);
        Delta::encode(&self.deltas, to);
        to.number(self.content.len() as u64);
        let packed = packing::pack(&self.content).ok();
        match packed.filter(|packed| packed.len() < self.content.len()) {
            Some(packed) => {
                to.number(1);
                to.bytes(&packed);
            }
            None => {
                to.number(0);
                to.bytes(&self.content);
            }
        }
        if let Some(journaled) = self.journaled {
            to.number(journaled);
        }
    }

    fn decode(from: &mut Decoder<'_>, is_journaled: bool) -> Result<Self, Malformed> {
        let state = State { number: from.number()?, time: from.number()? };
        let segments = TailSegment::decode(from)?;
        let deltas = Delta::decode(from)?;
        let len: usize = from.small()?;
        let is_packed = from.number()? != 0;
        let bytes = from.bytes()?;
        if len > MOST_CONTENT_BYTES {
            return Err(Malformed("it has too much content"));
        }
        let content = if is_packed {
            let unpacked = packing::unpack(bytes, len);
            unpacked.map_err(|_| Malformed("its content cannot be unpacked"))?
        } else {
            bytes.to_vec()
        };
        let ends = |delta: &Delta| delta.offset.map_or(0, |offset| offset + delta.len);
        if content.len() != len || deltas.iter().any(|delta| ends(delta) > len as u64) {
            return Err(Malformed("its content is too short"));
        }
        let journaled = if is_journaled { Some(from.number()?) } else { None };
        Ok(Self { state, segments, deltas, content: content.into(), journaled })
    }
}

/// Reads the object `id`: all of it, since it names what all segments changed that came with it,
/// however many they are.
fn fetched<T>(
    store: &dyn Store,
    id: ObjectId,
    mut decode: impl FnMut(&[u8]) -> Result<T, Malformed>,
) -> Result<T, ObjectsError> {
    let name = id.name();
    let get = || Ok(store.get_versioned(&name)?);
    understood(store, &name, get, |found| decode(&found.content))
}

/// Reads the flush `id`, which the map or a manifest names.
pub(crate) fn read(store: &dyn Store, id: ObjectId) -> Result<Flush, ObjectsError> {
    fetched(store, id, |bytes| match Next::decode(bytes, id)? {
        (Next::Flush(flush), _) => Ok(flush),
        (Next::End { .. }, _) => Err(Malformed("it is the end of an epoch, and no flush")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Directory;

    fn flush(content: Vec<u8>) -> Flush {
        let delta = |start, len, offset| Delta { start, len, offset };
        Flush {
            state: State { number: 7, time: 1_000_000 },
            segments: vec![TailSegment {
                id: ObjectId::new(3, 5),
                len_bytes: 100_000,
                born: 7,
                deltas: vec![delta(0, 4096, Some(0)), delta(8192, 4096, None)],
            }],
            deltas: vec![delta(1 << 20, content.len() as u64, Some(0))],
            content: content.into(),
            journaled: None,
        }
    }

    #[test]
    fn a_flush_is_read_as_it_was_written() {
        let id = ObjectId::of_flush(3, 9);
        let random = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for content in [vec![1; 16384], random] {
            for journaled in [None, Some(7), Some(u64::MAX)] {
                let next = Next::Flush(Flush { journaled, ..flush(content.clone()) });
                let encoded = next.encode(id, &[4; 16]);
                assert_eq!(Next::decode(&encoded, id).unwrap(), (next, [4; 16]));
                assert!(Next::decode(&encoded, id.next()).is_err());
                for at in [0, 9, encoded.len() / 2, encoded.len() - 1] {
                    let mut wrong = encoded.to_vec();
                    wrong[at] ^= 4;
                    assert!(Next::decode(&wrong, id).is_err(), "byte {at}");
                    assert!(Next::decode(&encoded[..at], id).is_err(), "{at} bytes");
                }
            }
        }
    }

    /// A program may write much between two flushes, in small pieces.
    #[test]
    fn a_flush_with_many_changes_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let store = Directory::new(folder.path());
        let (id, mut flush) = (ObjectId::of_flush(3, 9), flush(vec![1; 4096]));
        let delta = |at: u64| Delta { start: at << 20, len: 4096, offset: Some(at * 4096) };
        flush.segments[0].deltas = (0..3_000_000).map(delta).collect();
        let object = Next::Flush(flush.clone()).encode(id, &[4; 16]);
        assert!(object.len() > 16 << 20, "{}", object.len());
        store.create(&id.name(), object).unwrap();
        assert!(read(&store, id).unwrap() == flush);
        assert!(Next::read(&store, id, &[4; 16]).unwrap().0 == Next::Flush(flush));
    }

    #[test]
    fn what_is_mostly_zeros_takes_little() {
        let mut content = vec![0; 3 * 16384];
        content[..200].fill(7);
        let next = Next::Flush(flush(content));
        assert!(next.encode(ObjectId::of_flush(1, 1), &[4; 16]).len() < 400);
    }
}
