//! Hashing of logical addresses.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes addresses by one multiplication with a random factor: addresses come from images, and no
/// image may choose them to collide.
pub(crate) struct SpreadAddresses {
    factor: u64,
}

impl SpreadAddresses {
    pub(crate) fn new() -> Self {
        Self { factor: RandomState::new().hash_one(0) | 1 }
    }
}

impl BuildHasher for SpreadAddresses {
    type Hasher = AddressHasher;

    fn build_hasher(&self) -> AddressHasher {
        AddressHasher { factor: self.factor, hash: 0 }
    }
}

pub(crate) struct AddressHasher {
    factor: u64,
    hash: u64,
}

impl Hasher for AddressHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("an address hashes as one number");
    }

    fn write_u64(&mut self, address: u64) {
        let product = u128::from(address) * u128::from(self.factor);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
