//! The pieces of a segment: each has a checksum of its own, so that a reader of any part of the
//! object knows at once whether it is what was written.
//!
//! ```text
//!   64 KiB of the segment | checksum 8 | 64 KiB | checksum 8 | … | the rest | checksum 8
//! ```
//! A checksum covers the id of the segment and the number of the piece, too.

use std::ops::Range;

use bytes::Bytes;
use xxhash_rust::xxh64::Xxh64;

use crate::codec::Malformed;
use crate::id::ObjectId;

/// How much of a segment a piece holds. The last one may hold less.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;

const CHECKSUM_BYTES: usize = 8;

/// The length of a piece.
const PIECE_BYTES: u64 = CHUNK_BYTES + CHECKSUM_BYTES as u64;

/// The range of the object in which pieces lie.
pub(crate) fn range_of(pieces: &Range<u64>) -> Range<u64> {
    pieces.start * PIECE_BYTES..pieces.end * PIECE_BYTES
}

/// How much an object of `len_bytes` holds, without checksums.
pub(crate) fn held_bytes(len_bytes: u64) -> u64 {
    len_bytes.saturating_sub(len_bytes.div_ceil(PIECE_BYTES) * CHECKSUM_BYTES as u64)
}

/// Cuts `held` into pieces, where it lies.
pub(crate) fn cut(id: ObjectId, held: &mut Vec<u8>) {
    let len = held.len();
    let count = len.div_ceil(CHUNK_BYTES as usize);
    held.resize(len + count * CHECKSUM_BYTES, 0);
    for index in (0..count).rev() {
        let (start, to) = (index * CHUNK_BYTES as usize, index * PIECE_BYTES as usize);
        let end = len.min(start + CHUNK_BYTES as usize);
        held.copy_within(start..end, to);
        let (piece, rest) = held[to..].split_at_mut(end - start);
        let checksum = checksum(id, index as u64, piece);
        rest[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// What the pieces hold that `bytes` consists of, the first of which has the number `first`; `Err`
/// for each that is not as it was written.
pub(crate) fn checked(
    id: ObjectId,
    first: u64,
    bytes: &Bytes,
) -> impl Iterator<Item = Result<Bytes, Malformed>> {
    (first..).zip(bytes.chunks(PIECE_BYTES as usize)).map(move |(index, piece)| {
        let (held, expected) = piece.split_last_chunk().ok_or(Malformed("it is cut off"))?;
        if checksum(id, index, held) != u64::from_le_bytes(*expected) {
            return Err(Malformed("the checksum of a piece is wrong"));
        }
        Ok(bytes.slice_ref(held))
    })
}

/// Where byte `at` of what a segment holds lies in the object.
pub(crate) fn place_of(at: u64) -> u64 {
    at + at / CHUNK_BYTES * CHECKSUM_BYTES as u64
}

/// What the bytes of an object from byte `from` to its end hold, unchecked.
pub(crate) fn held_from(from: u64, bytes: &[u8]) -> Vec<u8> {
    let (mut held, mut at, mut left) = (Vec::with_capacity(bytes.len()), from, bytes);
    while !left.is_empty() {
        let end = (PIECE_BYTES - at % PIECE_BYTES).min(left.len() as u64);
        let (piece, rest) = left.split_at(end as usize);
        let of_checksum = (CHECKSUM_BYTES).min(piece.len());
        held.extend_from_slice(&piece[..piece.len() - of_checksum]);
        (at, left) = (at + end, rest);
    }
    held
}

/// Copies what an object that is in memory holds from byte `from` on.
pub(crate) fn copy(object: &[u8], mut from: u64, mut into: &mut [u8]) {
    while !into.is_empty() {
        let len = ((CHUNK_BYTES - from % CHUNK_BYTES) as usize).min(into.len());
        let (here, rest) = into.split_at_mut(len);
        here.copy_from_slice(&object[place_of(from) as usize..][..len]);
        (from, into) = (from + len as u64, rest);
    }
}

fn checksum(id: ObjectId, index: u64, held: &[u8]) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(&id.raw().to_le_bytes());
    hash.update(&index.to_le_bytes());
    hash.update(held);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = CHUNK_BYTES as usize;

    fn held(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 4096 * 31 + at) as u8).collect()
    }

    fn id() -> ObjectId {
        ObjectId::new(1, 2)
    }

    #[test]
    fn what_is_cut_is_found_again() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 77, 8 * PIECE] {
            let mut object = held(len);
            cut(id(), &mut object);
            assert_eq!(held_bytes(object.len() as u64), len as u64);
            let object = Bytes::from(object);
            let pieces: Result<Vec<_>, _> = checked(id(), 0, &object).collect();
            assert!(pieces.unwrap().concat() == held(len), "{len}");
            for from in [0, len / 2, len.saturating_sub(9)] {
                let place = place_of(from as u64);
                let found = held_from(place, &object[place as usize..]);
                assert!(found == held(len)[from..], "{len} from {from}");
                let mut copied = vec![0; len - from];
                copy(&object, from as u64, &mut copied);
                assert!(copied == held(len)[from..], "{len} from {from}");
            }
            let later: Vec<_> = (1..).zip(object.chunks(PIECE + 8).skip(1)).collect();
            for (index, piece) in later {
                let piece = object.slice_ref(piece);
                assert!(checked(id(), index, &piece).all(|piece| piece.is_ok()));
                assert!(checked(id(), index - 1, &piece).all(|piece| piece.is_err()));
            }
        }
    }

    #[test]
    fn no_change_is_overlooked() {
        let mut object = held(PIECE + 100);
        cut(id(), &mut object);
        let is_sound = |object: Vec<u8>| checked(id(), 0, &object.into()).all(|it| it.is_ok());
        assert!(is_sound(object.clone()));
        for at in [0, 77, PIECE - 1, PIECE, PIECE + 7, PIECE + 8, PIECE + 107, object.len() - 1] {
            let mut changed = object.clone();
            changed[at] ^= 1;
            assert!(!is_sound(changed), "byte {at}");
        }
        for len in [1, 7, 8, 9, PIECE, PIECE + 1, PIECE + 9, object.len() - 1] {
            assert!(!is_sound(object[..len].to_vec()), "{len} bytes");
        }
        let object = Bytes::from(object);
        assert!(checked(ObjectId::new(1, 3), 0, &object).all(|it| it.is_err()));
    }
}
