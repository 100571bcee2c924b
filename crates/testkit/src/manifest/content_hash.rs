//! A hash of a file's content that does not depend on the form of holes.

use xxhash_rust::xxh64::Xxh64;

const BLOCK_BYTES: usize = 4096;

/// Hashes the content of a file from its start to its end.
///
/// The hash covers the length and every block of 4096 bytes that is not all zero, with its place.
/// So zeros count the same whether they are read or skipped, and a hole of a terabyte costs
/// nothing.
#[derive(Clone)]
pub struct ContentHash {
    hasher: Xxh64,
    block: Vec<u8>,
    block_offset: u64,
}

impl ContentHash {
    /// The hash at the start of a file.
    pub fn new() -> Self {
        Self { hasher: Xxh64::new(0), block: Vec::with_capacity(BLOCK_BYTES), block_offset: 0 }
    }

    /// Adds the next `bytes` of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.finish_block();
            }
        }
    }

    /// Adds the next `len_bytes` of the file, which read as zeros.
    pub fn skip_hole(&mut self, mut len_bytes: u64) {
        let zeros = [0; BLOCK_BYTES];
        if !self.block.is_empty() {
            let rest = len_bytes.min((BLOCK_BYTES - self.block.len()) as u64);
            self.update(&zeros[..rest as usize]);
            len_bytes -= rest;
        }
        let whole_blocks = len_bytes - len_bytes % BLOCK_BYTES as u64;
        self.block_offset += whole_blocks;
        self.update(&zeros[..(len_bytes - whole_blocks) as usize]);
    }

    /// The hash of all added content.
    pub fn finish(mut self) -> u64 {
        let len_bytes = self.block_offset + self.block.len() as u64;
        self.finish_block();
        self.hasher.update(&len_bytes.to_le_bytes());
        self.hasher.digest()
    }

    fn finish_block(&mut self) {
        if self.block.iter().any(|&byte| byte != 0) {
            self.hasher.update(&self.block_offset.to_le_bytes());
            self.hasher.update(&self.block);
        }
        self.block_offset += self.block.len() as u64;
        self.block.clear();
    }
}

impl Default for ContentHash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(bytes: &[u8]) -> u64 {
        let mut hash = ContentHash::new();
        hash.update(bytes);
        hash.finish()
    }

    #[test]
    fn holes_and_zeros_are_the_same() {
        for (before, hole, after) in [(0, 10_000, 5), (5, 4091, 1), (100, 3, 7), (4096, 8192, 0)] {
            let mut bytes = vec![7; before];
            bytes.extend(vec![0; hole]);
            bytes.extend(vec![9; after]);
            let mut hash = ContentHash::new();
            hash.update(&vec![7; before]);
            hash.skip_hole(hole as u64);
            hash.update(&vec![9; after]);
            assert_eq!(hash.finish(), hash_of(&bytes), "{before} {hole} {after}");
        }
    }

    #[test]
    fn place_length_and_bytes_count() {
        let mut moved = vec![0; 8192];
        moved[4096] = 1;
        let mut original = vec![0; 8192];
        original[0] = 1;
        assert_ne!(hash_of(&moved), hash_of(&original));
        assert_ne!(hash_of(&[0; 4096]), hash_of(&[0; 4097]));
        assert_ne!(hash_of(b"bread"), hash_of(b"broad"));
    }
}
