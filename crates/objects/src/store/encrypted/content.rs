//! The content of an object, in chunks that are sealed on their own.
//!
//! ```text
//!   chunk: nonce 24 | up to 64 KiB, encrypted | tag 16
//!   nonce: 20 random bytes, the same in all chunks of an object | number of the chunk 4
//! ```
//! The highest bit of the number marks the last chunk. The cipher is XChaCha20-Poly1305, with the
//! object's name as associated data. An empty object has one empty chunk.
//!
//! # Invariants
//! - No two writes of any objects have the same 20 random bytes.
//! - A reader takes chunks only in the order of their numbers, and of one write. It takes an end of
//!   an object only after the chunk that is marked as the last one.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use crate::codec::Malformed;

/// How much a chunk holds. The last one may hold less.
const CHUNK_BYTES: u64 = 64 << 10;

const NONCE_BYTES: usize = 24;
const RANDOM_BYTES: usize = 20;
const TAG_BYTES: usize = 16;
const ADDED_BYTES: u64 = (NONCE_BYTES + TAG_BYTES) as u64;

/// The length of a whole chunk.
const SEALED_BYTES: u64 = CHUNK_BYTES + ADDED_BYTES;

const LAST: u32 = 1 << 31;

const CUT_OFF: Malformed = Malformed("it is cut off");
const CHANGED: Malformed = Malformed(
    "it is not what a holder of the key wrote under this name: it is damaged, or somebody changed \
     or exchanged it",
);

/// The length of what an object of `len_bytes` holds.
pub(super) fn held_bytes(len_bytes: u64) -> u64 {
    len_bytes.saturating_sub(len_bytes.div_ceil(SEALED_BYTES) * ADDED_BYTES)
}

/// The range of an object in which the chunks lie that hold `range`.
pub(super) fn range_of(range: &Range<u64>) -> Range<u64> {
    let place = |chunk: u64| chunk.saturating_mul(SEALED_BYTES);
    place(range.start / CHUNK_BYTES)..place(range.end.div_ceil(CHUNK_BYTES))
}

/// Seals and opens content.
pub(super) struct Content(pub(super) XChaCha20Poly1305);

impl Content {
    pub(super) fn seal(&self, name: &str, content: &[u8]) -> Bytes {
        let chunks = content.len().div_ceil(CHUNK_BYTES as usize).max(1);
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).expect("the system gives random bytes");
        let mut sealed = Vec::with_capacity(content.len() + chunks * ADDED_BYTES as usize);
        let mut left = content;
        for number in 0..chunks as u32 {
            let chunk;
            (chunk, left) = left.split_at(left.len().min(CHUNK_BYTES as usize));
            let mark = if left.is_empty() { LAST } else { 0 };
            let mut nonce = [0; NONCE_BYTES];
            nonce[..RANDOM_BYTES].copy_from_slice(&random);
            nonce[RANDOM_BYTES..].copy_from_slice(&(number | mark).to_le_bytes());
            sealed.extend_from_slice(&nonce);
            let start = sealed.len();
            sealed.extend_from_slice(chunk);
            let tag = self.0.encrypt_inout_detached(
                &XNonce::from(nonce),
                name.as_bytes(),
                (&mut sealed[start..]).into(),
            );
            sealed.extend_from_slice(&tag.expect("a chunk is short"));
        }
        sealed.into()
    }

    /// What the whole object `sealed` holds.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Result<Bytes, Malformed> {
        let (held, is_end) = self.open_from(name, 0, sealed)?;
        if is_end { Ok(held.into()) } else { Err(CUT_OFF) }
    }

    /// What `range` of an object holds, of which `sealed` is the part at [`range_of`] it, or the
    /// beginning of that part if the object ends there.
    pub(super) fn open_part(
        &self,
        name: &str,
        range: &Range<u64>,
        sealed: &[u8],
    ) -> Result<Bytes, Malformed> {
        let asked = range_of(range);
        let first = range.start / CHUNK_BYTES;
        let (held, is_end) = self.open_from(name, first, sealed)?;
        if !is_end && (sealed.len() as u64) < asked.end - asked.start {
            return Err(CUT_OFF);
        }
        let held = Bytes::from(held);
        let place = |at: u64| (at - first * CHUNK_BYTES).min(held.len() as u64) as usize;
        let part = held.slice(place(range.start)..place(range.end));
        if part.is_empty() && !range.is_empty() { Err(CUT_OFF) } else { Ok(part) }
    }

    /// What chunks hold, the first of which has the number `first`, and whether the object ends
    /// with them.
    fn open_from(
        &self,
        name: &str,
        first: u64,
        sealed: &[u8],
    ) -> Result<(Vec<u8>, bool), Malformed> {
        let mut held = Vec::with_capacity(sealed.len());
        let mut random = None;
        let mut is_end = false;
        for (number, chunk) in (first..).zip(sealed.chunks(SEALED_BYTES as usize)) {
            let (nonce, rest) = chunk.split_first_chunk::<NONCE_BYTES>().ok_or(CUT_OFF)?;
            let (content, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(CUT_OFF)?;
            let (write, mark) = nonce.split_last_chunk::<4>().ok_or(CUT_OFF)?;
            let mark = u32::from_le_bytes(*mark);
            let is_next = u64::from(mark & !LAST) == number && !is_end;
            if !is_next || *random.get_or_insert(write) != write {
                return Err(CHANGED);
            }
            is_end = mark & LAST != 0;
            let start = held.len();
            held.extend_from_slice(content);
            self.0
                .decrypt_inout_detached(
                    &XNonce::from(*nonce),
                    name.as_bytes(),
                    (&mut held[start..]).into(),
                    &Tag::from(*tag),
                )
                .map_err(|_| if is_end { CHANGED } else { cut_or_changed(chunk) })?;
        }
        Ok((held, is_end))
    }
}

/// Only the last chunk of an object may be shorter than others.
fn cut_or_changed(chunk: &[u8]) -> Malformed {
    if (chunk.len() as u64) < SEALED_BYTES { CUT_OFF } else { CHANGED }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content")
    }
}

#[cfg(test)]
mod tests {
    use chacha20poly1305::KeyInit;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const CHUNK: usize = CHUNK_BYTES as usize;
    const SEALED: usize = SEALED_BYTES as usize;

    fn content() -> Content {
        Content(XChaCha20Poly1305::new(&[7; 32].into()))
    }

    fn held(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 4096 * 31 + at) as u8).collect()
    }

    #[test]
    fn what_is_sealed_is_found_again() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 77] {
            let (content, held) = (content(), held(len));
            let sealed = content.seal("name", &held);
            assert_eq!(held_bytes(sealed.len() as u64), len as u64);
            assert!(content.open("name", &sealed).unwrap() == held);
            for start in [0, len / 2, CHUNK, len.saturating_sub(1)] {
                for end in [start + 1, len, len + 1000, 2 * CHUNK] {
                    if start >= len || start >= end {
                        continue;
                    }
                    let range = start as u64..end as u64;
                    let asked = range_of(&range);
                    let asked = asked.start as usize..(asked.end as usize).min(sealed.len());
                    let part = content.open_part("name", &range, &sealed[asked]).unwrap();
                    assert!(part == held[start..end.min(len)], "{start}..{end} of {len}");
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..2000 {
            let len = rng.random_range(0..200);
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            if len > NONCE_BYTES && rng.random_bool(0.5) {
                bytes[RANDOM_BYTES..NONCE_BYTES].copy_from_slice(&LAST.to_le_bytes());
            }
            assert!(content().open("name", &bytes).is_err());
            let start = rng.random_range(0..u64::MAX);
            for range in [start..start.saturating_add(1), 0..u64::MAX, start..u64::MAX] {
                assert!(content().open_part("name", &range, &bytes).is_err(), "{range:?}");
            }
            assert!(held_bytes(rng.random()) < u64::MAX);
        }
    }

    #[test]
    fn no_change_is_overlooked() {
        let (content, len) = (content(), 2 * CHUNK + 100);
        let sealed = content.seal("name", &held(len));
        for at in [0, 19, 20, 23, 24, CHUNK, SEALED - 1, SEALED, sealed.len() - 1] {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert!(content.open("name", &changed).is_err(), "byte {at}");
        }
        for end in [0, 1, 40, 41, SEALED - 1, SEALED, 2 * SEALED, sealed.len() - 1] {
            assert!(content.open("name", &sealed[..end]).is_err(), "{end} bytes");
            let whole = 0..len as u64;
            assert!(content.open_part("name", &whole, &sealed[..end]).is_err(), "{end} bytes");
        }
        assert!(content.open("other", &sealed).is_err());
        let chunks: Vec<_> = sealed.chunks(SEALED).collect();
        let other = content.seal("name", &held(len));
        let others: Vec<_> = other.chunks(SEALED).collect();
        for exchanged in [
            [chunks[1], chunks[0], chunks[2]].concat(),
            [chunks[0], chunks[2]].concat(),
            [chunks[0], chunks[1], chunks[2], chunks[2]].concat(),
            [chunks[0], others[1], chunks[2]].concat(),
        ] {
            assert!(content.open("name", &exchanged).is_err());
        }
        let second = CHUNK_BYTES..2 * CHUNK_BYTES;
        assert!(content.open_part("name", &second, chunks[0]).is_err());
        assert!(content.open_part("name", &second, chunks[1]).is_ok());
    }
}
