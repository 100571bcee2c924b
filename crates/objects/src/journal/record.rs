//! One record of a journal: a change of the device, or the end of a flush.
//!
//! ```text
//!   magic 8, position 8, chain 8, kind 8, start 8, length 8, durable 8, checksum of content 8,
//!   checksum of all that 8; zeros up to 512 bytes; content; zeros up to a multiple of 512 bytes
//! ```
//! `chain` is the checksum of the record before: what an earlier process left behind does not
//! continue what a later one wrote in its place.

use std::io::IoSlice;

use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Records begin at multiples of this, in bytes.
pub(super) const UNIT: u64 = 512;

/// The most content of one record, in bytes.
pub(super) const MOST_CONTENT: usize = 1 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"LarderJR");
const NUMBERS: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The device gets the content.
    Write,
    /// The device's range needs no content.
    Discard,
    /// All before it is one state of the device.
    Flush,
    /// The rest of the area, where no record fits.
    Rest,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Write, Self::Discard, Self::Flush, Self::Rest];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Where it is in the journal, counted from the journal's first record.
    pub(super) position: u64,
    pub(super) chain: u64,
    pub(super) kind: Kind,
    /// The range of the device that it changes.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The end of the last flush that was durable when this one was written: whatever came after that
    /// may be missing, and a later process may have written something else in its place.
    pub(super) durable: u64,
    pub(super) content: u64,
}

impl Record {
    /// How much of the journal it takes.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            Kind::Write => size(self.len),
            Kind::Discard | Kind::Flush => UNIT,
            Kind::Rest => self.len,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.position + self.size()
    }

    /// Where its content lies in the journal.
    pub(super) fn content_at(&self) -> u64 {
        self.position + UNIT
    }

    /// Its first unit, and the chain for the next record.
    pub(super) fn encode(&self) -> ([u8; UNIT as usize], u64) {
        let kind = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64;
        let Self { position, chain, start, len, durable, content, .. } = *self;
        let mut unit = [0; UNIT as usize];
        let numbers = [MAGIC, position, chain, kind, start, len, durable, content];
        for (into, number) in unit.chunks_exact_mut(8).zip(numbers) {
            into.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh64(&unit[..(NUMBERS - 1) * 8], 0);
        unit[(NUMBERS - 1) * 8..NUMBERS * 8].copy_from_slice(&checksum.to_le_bytes());
        (unit, checksum)
    }

    /// The record in `unit`, if one is there and belongs there, and the chain for the next one.
    pub(super) fn decode(unit: &[u8], position: u64) -> Option<(Self, u64)> {
        let mut numbers = unit.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("8 bytes");
            u64::from_le_bytes(bytes)
        });
        let mut next = || numbers.next();
        let is_record = next()? == MAGIC && next()? == position;
        let (chain, kind) = (next()?, *Kind::ALL.get(usize::try_from(next()?).ok()?)?);
        let (start, len, durable, content) = (next()?, next()?, next()?, next()?);
        let is_whole = next()? == xxh64(unit.get(..(NUMBERS - 1) * 8)?, 0);
        let is_sensible = start.checked_add(len).is_some()
            && (kind != Kind::Write || len <= MOST_CONTENT as u64)
            && (kind != Kind::Rest || (len > 0 && len % UNIT == 0));
        let record = Self { position, chain, kind, start, len, durable, content };
        let checksum = xxh64(&unit[..(NUMBERS - 1) * 8], 0);
        (is_record && is_whole && is_sensible).then_some((record, checksum))
    }
}

/// How much of the journal a record with so much content takes.
pub(super) fn size(content: u64) -> u64 {
    UNIT + content.next_multiple_of(UNIT)
}

/// The checksum of content in parts.
pub(super) fn checksum(parts: &[IoSlice<'_>]) -> u64 {
    let mut hash = Xxh64::new(0);
    for part in parts {
        hash.update(part);
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_where_it_was_written() {
        for kind in Kind::ALL {
            let record = Record {
                position: 1 << 40,
                chain: 77,
                kind,
                start: 4096,
                len: 8192,
                durable: 512,
                content: 5,
            };
            let (unit, chain) = record.encode();
            assert_eq!(Record::decode(&unit, 1 << 40), Some((record, chain)));
            assert_eq!(Record::decode(&unit, 0), None);
            for at in 0..NUMBERS * 8 {
                let mut wrong = unit;
                wrong[at] ^= 4;
                assert_eq!(Record::decode(&wrong, 1 << 40), None, "byte {at}");
            }
        }
        assert_eq!(Record::decode(&[0; UNIT as usize], 0), None);
    }
}
