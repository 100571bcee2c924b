//! The catalogue: which streams are there, and which are on their way.

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

use super::part::Checksum;
use crate::codec::{Decoder, Encoder, Malformed};
use crate::confirmed::Confirmed;
use crate::error::ObjectsError;
use crate::fetch::understood;
use crate::store::{Problem, Store, Versioned};

/// The catalogue's name.
pub(crate) const NAME: &str = "catalogue";

const MAGIC: &[u8; 8] = b"LarderSC";
const VERSION: u64 = 1;

/// A process tries a change again so often when other processes change the catalogue first.
const MOST_ATTEMPTS: usize = 100;

/// A part needs as much memory: no catalogue makes a reader use more.
const MOST_PART_BYTES: u64 = 1 << 30;

/// So many parts have an index of 1 GiB.
const MOST_PARTS: u64 = 1 << 25;

/// The state of a snapshot that a stream has or needs, as the stream names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The snapshot's uuid, or that of the one that it was received from.
    pub uuid: [u8; 16],
    /// The transaction that last changed it.
    pub ctransid: u64,
}

/// The random name of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// Reads 16 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let id = u64::from_str_radix(text, 16).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }

    /// The same as a number.
    pub fn number(&self) -> u64 {
        self.0
    }

    fn random() -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        Self(high ^ low)
    }
}

/// 16 digits.
impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a snapshot: one part of a path. A name that led elsewhere would lead a receiver
/// there.
#[derive(Clone, PartialEq, Eq)]
pub struct Name(Vec<u8>);

impl Name {
    /// The name in `bytes`, if a snapshot can have it.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let leads_elsewhere = matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/');
        (!leads_elsewhere && !bytes.contains(&0)).then(|| Self(bytes.to_vec()))
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Self::new(from.bytes()?).ok_or(Malformed("a name in it is impossible"))
    }
}

/// The name, safe for a terminal.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).escape_debug().fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a stream holds, and how. The same description means the same snapshot, sent the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The snapshot.
    pub snapshot: Origin,
    /// The snapshot that the stream is the difference from.
    pub parent: Option<Origin>,
    /// The snapshots that the stream clones from.
    pub clone_sources: Vec<Origin>,
    /// The version of the format.
    pub version: u32,
    /// Compressed data is sent as it is stored.
    pub is_compressed: bool,
}

impl Description {
    /// The snapshots that a receiver must have.
    pub fn needs(&self) -> impl Iterator<Item = &Origin> {
        self.parent.iter().chain(&self.clone_sources)
    }

    fn encode(&self, to: &mut Encoder) {
        encode_origin(to, &self.snapshot);
        let parent: Vec<_> = self.parent.into_iter().collect();
        to.list(&parent, encode_origin);
        to.list(&self.clone_sources, encode_origin);
        to.number(self.version.into());
        to.number(self.is_compressed.into());
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            snapshot: decode_origin(from)?,
            parent: from.list(decode_origin)?.pop(),
            clone_sources: from.list(decode_origin)?,
            version: from.small()?,
            is_compressed: from.number()? != 0,
        })
    }
}

/// A complete stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name in the store.
    pub id: StreamId,
    /// The name of its snapshot.
    pub name: Name,
    /// What it holds.
    pub description: Description,
    /// When it was complete, in seconds since 1970, by the clock of the sender.
    pub time: u64,
    /// Its length.
    pub len_bytes: u64,
    /// The length of all parts but the last one.
    pub part_bytes: u64,
    pub(super) index: Checksum,
}

impl Stream {
    /// The number of its parts.
    pub fn parts(&self) -> u64 {
        self.len_bytes.div_ceil(self.part_bytes)
    }

    fn encode(&self, to: &mut Encoder) {
        to.number(self.id.0);
        to.bytes(self.name.as_bytes());
        self.description.encode(to);
        for number in [self.time, self.len_bytes, self.part_bytes] {
            to.number(number);
        }
        to.raw(self.index.as_bytes());
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let stream = Self {
            id: StreamId(from.number()?),
            name: Name::decode(from)?,
            description: Description::decode(from)?,
            time: from.number()?,
            len_bytes: from.number()?,
            part_bytes: from.number()?,
            index: Checksum::from_bytes(from.array()?),
        };
        let has_parts = (1..=MOST_PART_BYTES).contains(&stream.part_bytes);
        if !has_parts || stream.parts() > MOST_PARTS {
            return Err(Malformed("the length of a stream in it is impossible"));
        }
        Ok(stream)
    }
}

/// A stream that is being sent, or whose sender was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its name in the store.
    pub id: StreamId,
    /// The name of its snapshot.
    pub name: Name,
    /// What it holds.
    pub description: Description,
    /// When a sender last said that it was at work, in seconds since 1970, by the
    /// clock of the store.
    pub time: u64,
}

impl Unfinished {
    pub(super) fn new(name: &Name, description: &Description, time: u64) -> Self {
        let (name, description) = (name.clone(), description.clone());
        Self { id: StreamId::random(), name, description, time }
    }

    fn encode(&self, to: &mut Encoder) {
        to.number(self.id.0);
        to.bytes(self.name.as_bytes());
        self.description.encode(to);
        to.number(self.time);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: StreamId(from.number()?),
            name: Name::decode(from)?,
            description: Description::decode(from)?,
            time: from.number()?,
        })
    }
}

/// The streams in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Each change raises it, so that no two contents are the same: an old request that arrives
    /// late can replace nothing.
    number: u64,
    /// The complete streams, oldest first.
    pub streams: Vec<Stream>,
    /// The streams that are being sent, or whose sender was interrupted.
    pub unfinished: Vec<Unfinished>,
}

impl Catalogue {
    /// Reads the catalogue. `None` if there is none.
    ///
    /// # Errors
    /// [`ObjectsError::Damaged`], and those of the store.
    pub fn find(store: &dyn Store) -> Result<Option<Self>, ObjectsError> {
        Ok(Self::read(store)?.map(|(catalogue, _)| catalogue))
    }

    /// Reads the catalogue.
    ///
    /// # Errors
    /// [`ObjectsError::NoStreams`] if there is none; and as [`find`](Self::find).
    pub fn load(store: &dyn Store) -> Result<Self, ObjectsError> {
        let none = || ObjectsError::NoStreams { store: store.name().to_owned() };
        Self::find(store)?.ok_or_else(none)
    }

    /// The stream that `text` names: by its id, or by the uuid or the name of its snapshot.
    ///
    /// # Errors
    /// [`ObjectsError::NoSuchStream`], [`ObjectsError::Ambiguous`]. They name `store`.
    pub fn stream(&self, store: &dyn Store, text: &str) -> Result<&Stream, ObjectsError> {
        let (id, uuid) = (StreamId::parse(text), Uuid::parse_str(text).ok().map(Uuid::into_bytes));
        let is_meant = |stream: &&Stream| {
            id == Some(stream.id)
                || uuid == Some(stream.description.snapshot.uuid)
                || stream.name.as_bytes() == text.as_bytes()
        };
        let (store, name) = (store.name().to_owned(), text.to_owned());
        let found: Vec<_> = self.streams.iter().filter(is_meant).collect();
        match *found {
            [] => Err(ObjectsError::NoSuchStream { store, name }),
            [stream] => Ok(stream),
            _ => {
                let ids: Vec<_> = found.iter().map(|stream| stream.id.to_string()).collect();
                Err(ObjectsError::Ambiguous { store, name, ids: ids.join(", ") })
            }
        }
    }

    pub(super) fn with(&self, description: &Description) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.description == *description)
    }

    /// Whether a stream or an interrupted send has this id.
    pub(super) fn knows(&self, id: StreamId) -> bool {
        self.streams.iter().any(|stream| stream.id == id)
            || self.unfinished.iter().any(|unfinished| unfinished.id == id)
    }

    fn read(store: &dyn Store) -> Result<Option<(Self, Versioned)>, ObjectsError> {
        let get = || match store.get_versioned(NAME) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.problem == Problem::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        };
        understood(store, NAME, get, |found: &Option<Versioned>| {
            let Some(found) = found else { return Ok(None) };
            Ok(Some((Self::decode(&found.content)?, found.clone())))
        })
    }

    /// Changes the catalogue in one step, and creates it if there is none. `change` is called again
    /// if somebody else has changed it meanwhile, which may have been an earlier call of this one
    /// whose reply was lost. Returns the catalogue as it is then.
    pub(super) fn change<T>(
        store: &dyn Store,
        change: impl FnMut(&mut Self) -> Result<T, ObjectsError>,
    ) -> Result<(Self, T), ObjectsError> {
        Self::replace(store, change, |before, after| before != after)
    }

    /// The same, for callers that delete what the catalogue lacks. It is replaced even if it stays
    /// as it is: that it can be is the proof that the store has no other one. A reply to a read may
    /// be old, or say wrongly that there is none.
    pub(super) fn change_for_sure<T>(
        store: &dyn Store,
        change: impl FnMut(&mut Self) -> Result<T, ObjectsError>,
    ) -> Result<(Self, T, Confirmed), ObjectsError> {
        let (catalogue, result) = Self::replace(store, change, |_, _| true)?;
        Ok((catalogue, result, Confirmed::by_a_write()))
    }

    fn replace<T>(
        store: &dyn Store,
        mut change: impl FnMut(&mut Self) -> Result<T, ObjectsError>,
        is_worth_it: impl Fn(&Self, &Self) -> bool,
    ) -> Result<(Self, T), ObjectsError> {
        let mut attempts = 0;
        loop {
            let found = Self::read(store)?;
            let before = found.as_ref().map(|(it, _)| it.clone()).unwrap_or_default();
            let mut after = before.clone();
            let result = change(&mut after)?;
            if !is_worth_it(&before, &after) {
                return Ok((after, result));
            }
            after.number += 1;
            let content = Bytes::from(after.encode());
            let put = match &found {
                Some((_, found)) => {
                    store.replace(NAME, content, &found.version, &found.content).map(drop)
                }
                None => store.create(NAME, content),
            };
            attempts += 1;
            match put {
                Ok(()) => return Ok((after, result)),
                Err(error) if error.problem == Problem::Condition && attempts < MOST_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.raw(MAGIC);
        to.number(VERSION);
        to.number(self.number);
        to.list(&self.streams, |to, stream| stream.encode(to));
        to.list(&self.unfinished, |to, unfinished| unfinished.encode(to));
        to.sealed()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Decoder::unsealed(bytes)?;
        if from.raw(MAGIC.len())? != MAGIC {
            return Err(Malformed("it is no catalogue of streams"));
        }
        if from.number()? != VERSION {
            return Err(Malformed("a newer version of larder wrote it"));
        }
        let catalogue = Self {
            number: from.number()?,
            streams: from.list(Stream::decode)?,
            unfinished: from.list(Unfinished::decode)?,
        };
        from.end()?;
        Ok(catalogue)
    }
}

fn encode_origin(to: &mut Encoder, origin: &Origin) {
    to.raw(&origin.uuid);
    to.number(origin.ctransid);
}

fn decode_origin(from: &mut Decoder<'_>) -> Result<Origin, Malformed> {
    Ok(Origin { uuid: from.array()?, ctransid: from.number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: u8) -> Origin {
        Origin { uuid: [number; 16], ctransid: number.into() }
    }

    fn catalogue() -> Catalogue {
        let description = Description {
            snapshot: origin(1),
            parent: Some(origin(2)),
            clone_sources: vec![origin(3), origin(4)],
            version: 2,
            is_compressed: true,
        };
        let stream = Stream {
            id: StreamId(77),
            name: Name::new(b"monday \xff").unwrap(),
            description: description.clone(),
            time: 1_000_000,
            len_bytes: 100,
            part_bytes: 64,
            index: Checksum::of(b"index"),
        };
        let unfinished = Unfinished {
            id: StreamId(u64::MAX),
            name: Name::new(b"tuesday").unwrap(),
            description: Description { parent: None, ..description },
            time: 1_000_001,
        };
        Catalogue { number: 5, streams: vec![stream], unfinished: vec![unfinished] }
    }

    #[test]
    fn a_catalogue_is_read_as_it_was_written() {
        assert_eq!(Catalogue::decode(&catalogue().encode()).unwrap(), catalogue());
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let bytes = catalogue().encode();
        let content = &bytes[..bytes.len() - 4];
        for at in 0..content.len() {
            for wrong in [0, 1, 0x7f, 0xff] {
                let mut content = content.to_vec();
                content[at] = wrong;
                let mut to = Encoder::default();
                to.raw(&content);
                let _ = Catalogue::decode(&to.sealed());
            }
            assert!(Catalogue::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b".."[..], b"a/b", b"", b"a\0"] {
            assert_eq!(Name::new(name), None);
            let mut catalogue = catalogue();
            catalogue.streams[0].name = Name(name.to_vec());
            assert!(Catalogue::decode(&catalogue.encode()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        assert_eq!(StreamId::parse(&StreamId(77).to_string()), Some(StreamId(77)));
        for text in ["4d", "+00000000000004d", "000000000000004D", ""] {
            assert_eq!(StreamId::parse(text), None, "{text}");
        }
    }
}
