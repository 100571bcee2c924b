//! Fingerprints: numbers that stand for facts, so that sets of facts compare by sums.
//!
//! Comparing the wrapping sums of fingerprints tells two sets of facts apart: the order of facts
//! does not matter, no fact is kept, and sums of parts add up to the sum of the whole. Every check
//! draws a new key, so no image can be made to collide: different sets have equal sums with
//! probability 2^-64. Equal sets always have equal sums.

use std::hash::{BuildHasher, RandomState};

/// The key of one check's fingerprints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprints {
    keys: [u64; 4],
}

impl Fingerprints {
    /// A new random key.
    pub(crate) fn new() -> Self {
        let source = RandomState::new();
        // Odd, so that multiplying by a key loses nothing.
        Self { keys: std::array::from_fn(|index| source.hash_one(index) | 1) }
    }

    /// The fingerprint of a tuple of numbers; `what` keeps different kinds of facts apart.
    pub(crate) fn of<const N: usize>(&self, what: u64, parts: [u64; N]) -> u64 {
        let start = mix(what ^ self.keys[0], self.keys[1]);
        self.finish(parts.iter().fold(start, |state, part| self.absorb(state, *part)))
    }

    /// The fingerprint of some bytes.
    pub(crate) fn of_bytes(&self, bytes: &[u8]) -> u64 {
        let start = mix(bytes.len() as u64 ^ self.keys[2], self.keys[3]);
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        self.finish(bytes.chunks(8).fold(start, |state, chunk| self.absorb(state, word(chunk))))
    }

    fn absorb(&self, state: u64, part: u64) -> u64 {
        mix(state ^ self.keys[1], part ^ self.keys[2]) ^ state.rotate_left(23)
    }

    fn finish(&self, state: u64) -> u64 {
        mix(state ^ self.keys[3], self.keys[0])
    }
}

/// Multiplies to 128 bits and folds the halves.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_facts_have_different_fingerprints() {
        let fingerprints = Fingerprints::new();
        let mut seen = HashSet::new();
        for a in 0..60 {
            for b in 0..60 {
                assert!(seen.insert(fingerprints.of(1, [a, b])));
                assert!(seen.insert(fingerprints.of(2, [a, b])));
            }
        }
        for len in 0..64 {
            assert!(seen.insert(fingerprints.of_bytes(&vec![0; len])));
        }
    }

    #[test]
    fn sums_do_not_depend_on_order() {
        let f = Fingerprints::new();
        let sum = |facts: &[u64]| facts.iter().fold(0, |s: u64, x| s.wrapping_add(f.of(0, [*x])));
        assert_eq!(sum(&[1, 2, 3]), sum(&[3, 1, 2]));
        assert_ne!(sum(&[1, 2, 3]), sum(&[1, 2, 2]));
    }
}
