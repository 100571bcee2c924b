//! The parts of a stream: their checksums, names and index.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::catalogue::{Stream, StreamId};
use crate::codec::Malformed;
use crate::error::ObjectsError;
use crate::fetch::understood;
use crate::hex;
use crate::store::Store;

/// The folder of parts.
pub(super) const PARTS: &str = "streams";

/// The folder of indexes.
pub(super) const INDEXES: &str = "indexes";

const CHECKSUM_BYTES: usize = 32;

/// A SHA-256 checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Checksum([u8; CHECKSUM_BYTES]);

impl Checksum {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn from_bytes(bytes: [u8; CHECKSUM_BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; CHECKSUM_BYTES] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        hex::bytes(text).map(Self)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::text(&self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which part of which stream an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) stream: StreamId,
    pub(super) number: u64,
    pub(super) checksum: Checksum,
}

impl Part {
    /// The folder of the parts of `stream`.
    pub(super) fn folder(stream: StreamId) -> String {
        format!("{PARTS}/{stream}")
    }

    /// The names of a stream's parts are in the order of the parts.
    pub(super) fn name(&self) -> String {
        let Self { stream, number, checksum } = self;
        format!("{PARTS}/{stream}/{number:010}-{checksum}")
    }

    /// The part that has this name. Other files may lie there too.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stream, part) = name.strip_prefix(PARTS)?.strip_prefix('/')?.split_once('/')?;
        let (number, checksum) = part.split_once('-')?;
        let part = Self {
            stream: StreamId::parse(stream)?,
            number: number.parse().ok()?,
            checksum: Checksum::parse(checksum)?,
        };
        (part.name() == name).then_some(part)
    }

    /// Reads the part, which has `len_bytes`, and compares it with its checksum.
    ///
    /// # Errors
    /// [`ObjectsError::Damaged`] if it has another content.
    pub(super) fn fetch(&self, store: &dyn Store, len_bytes: u64) -> Result<Bytes, ObjectsError> {
        fetch(store, &self.name(), len_bytes, self.checksum)
    }
}

/// The index of a stream, as an object's name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexName {
    pub(super) stream: StreamId,
    pub(super) checksum: Checksum,
}

impl IndexName {
    pub(super) fn name(&self) -> String {
        format!("{INDEXES}/{}-{}", self.stream, self.checksum)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stream, checksum) = name.strip_prefix(INDEXES)?.strip_prefix('/')?.split_once('-')?;
        let index = Self { stream: StreamId::parse(stream)?, checksum: Checksum::parse(checksum)? };
        (index.name() == name).then_some(index)
    }
}

/// The checksums of a stream's parts, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index(Vec<Checksum>);

impl Index {
    pub(super) fn new(checksums: Vec<Checksum>) -> Self {
        Self(checksums)
    }

    pub(super) fn encode(&self) -> Bytes {
        self.0.iter().flat_map(|checksum| checksum.0).collect()
    }

    /// The index of a stream in the catalogue.
    pub(super) fn fetch(store: &dyn Store, stream: &Stream) -> Result<Self, ObjectsError> {
        let name = IndexName { stream: stream.id, checksum: stream.index }.name();
        let len_bytes = stream.parts() * CHECKSUM_BYTES as u64;
        let bytes = fetch(store, &name, len_bytes, stream.index)?;
        let (checksums, _) = bytes.as_chunks::<CHECKSUM_BYTES>();
        Ok(Self(checksums.iter().copied().map(Checksum).collect()))
    }

    /// The parts of the stream `stream`, and their lengths.
    pub(super) fn parts(&self, stream: &Stream) -> impl ExactSizeIterator<Item = (Part, u64)> {
        let (id, len_bytes, part_bytes) = (stream.id, stream.len_bytes, stream.part_bytes);
        self.0.iter().enumerate().map(move |(number, &checksum)| {
            let number = number as u64;
            let part = Part { stream: id, number, checksum };
            (part, part_bytes.min(len_bytes - number * part_bytes))
        })
    }
}

fn fetch(
    store: &dyn Store,
    name: &str,
    len_bytes: u64,
    checksum: Checksum,
) -> Result<Bytes, ObjectsError> {
    if len_bytes == 0 {
        return Ok(Bytes::new());
    }
    // Simple web servers give whole objects only.
    let get = || Ok(store.get_versioned(name)?.content);
    understood(store, name, get, |bytes: &Bytes| {
        if bytes.len() as u64 != len_bytes {
            return Err(Malformed("it has another length"));
        }
        if Checksum::of(bytes) != checksum {
            return Err(Malformed("its content has another checksum"));
        }
        Ok(bytes.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let part = Part {
            stream: StreamId::parse("0000000000000007").unwrap(),
            number: 12,
            checksum: Checksum::of(b"bread"),
        };
        assert_eq!(Part::parse(&part.name()), Some(part));
        let index = IndexName { stream: part.stream, checksum: part.checksum };
        assert_eq!(IndexName::parse(&index.name()), Some(index));
        for name in ["streams/x/1-2", "streams/0000000000000007/12", "manifest", "indexes/7"] {
            assert!(Part::parse(name).is_none() && IndexName::parse(name).is_none(), "{name}");
        }
        let with_other_digits = part.name().replace("0000000012", "12");
        assert_eq!(Part::parse(&with_other_digits), None);
    }

    #[test]
    fn the_checksum_is_the_one_of_sha256sum() {
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Checksum::of(b"").to_string(), expected);
        assert_eq!(Checksum::parse(expected), Some(Checksum::of(b"")));
    }
}
