//! Extents: ranges of the device and where their content lies.

use std::ops::Range;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::id::ObjectId;

/// Where a byte of content lies in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) segment: ObjectId,
    pub(crate) offset: u64,
}

impl Source {
    pub(crate) fn plus(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// A range of the device whose content lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) source: Source,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The part that lies in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Self> {
        let (start, end) = (self.start.max(range.start), self.end().min(range.end));
        (start < end).then(|| Self {
            start,
            len: end - start,
            source: self.source.plus(start - self.start),
        })
    }

    /// Whether `next` goes on where this one ends, on the device and in the segment.
    pub(crate) fn goes_on_with(&self, next: &Self) -> bool {
        self.end() == next.start && self.source.plus(self.len) == next.source
    }
}

/// A range that one segment changes: content in that segment, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The offset in the segment, or `None` after a discard.
    pub(crate) offset: Option<u64>,
}

impl Delta {
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start + self.len
    }

    /// Encodes deltas that are sorted and do not overlap.
    pub(crate) fn encode(deltas: &[Self], to: &mut Encoder) {
        let (mut device_at, mut segment_at) = (0_u64, 0_u64);
        to.list(deltas, |to, delta| {
            to.number(delta.start - device_at);
            to.number(delta.len);
            match delta.offset {
                None => to.number(0),
                Some(offset) => {
                    to.number(1 + zigzag(offset.wrapping_sub(segment_at) as i64));
                    segment_at = offset + delta.len;
                }
            }
            device_at = delta.start + delta.len;
        });
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Vec<Self>, Malformed> {
        let (mut device_at, mut segment_at) = (0_u64, 0_u64);
        from.list(|from| {
            let start = add(device_at, from.number()?)?;
            let len = from.number()?;
            device_at = add(start, len)?;
            let offset = match from.number()? {
                0 => None,
                number => {
                    let offset = segment_at.wrapping_add(unzigzag(number - 1) as u64);
                    segment_at = add(offset, len)?;
                    Some(offset)
                }
            };
            if len == 0 {
                return Err(Malformed("a range in it is empty"));
            }
            Ok(Self { start, len, offset })
        })
    }
}

/// The sum, unless it passes the end of all devices.
pub(crate) fn add(one: u64, other: u64) -> Result<u64, Malformed> {
    one.checked_add(other)
        .filter(|sum| i64::try_from(*sum).is_ok())
        .ok_or(Malformed("a range in it is too long"))
}

/// Small numbers of either sign as small numbers.
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_read_as_they_are_written() {
        let delta = |start, len, offset| Delta { start, len, offset };
        let deltas = [
            delta(0, 4096, Some(1 << 20)),
            delta(4096, 16384, Some(0)),
            delta(1 << 40, 4096, None),
            delta((1 << 40) + 8192, 1 << 23, Some(16384)),
        ];
        let mut encoder = Encoder::default();
        Delta::encode(&deltas, &mut encoder);
        let sealed = encoder.sealed();
        let mut decoder = Decoder::unsealed(&sealed).unwrap();
        assert_eq!(Delta::decode(&mut decoder).unwrap(), deltas);
        decoder.end().unwrap();
    }

    #[test]
    fn signs_survive() {
        for number in [0, 1, -1, 63, -64, i64::MAX / 2, i64::MIN / 2] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert!(zigzag(-3) < 8);
    }
}
