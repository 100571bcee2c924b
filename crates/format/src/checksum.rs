//! Checksums of tree blocks, superblocks and data.

use std::fmt;

use blake2::Blake2b;
use blake2::digest::consts::U32 as Bytes32;
use crc_fast::crc32_iscsi;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh64::xxh64;

/// Bytes for a checksum in headers and the superblock.
pub const CHECKSUM_SIZE: usize = 32;

/// A checksum algorithm (`BTRFS_CSUM_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumType {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// XXH64, 8 bytes.
    Xxhash,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with a digest of 32 bytes.
    Blake2,
}

impl ChecksumType {
    /// All of them, in the order of their numbers on disk.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Xxhash, Self::Sha256, Self::Blake2];

    /// The algorithm of this number on disk.
    pub fn from_disk(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number on disk.
    pub const fn to_disk(self) -> u16 {
        self as u16
    }

    /// The name that btrfs-progs uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2 => "blake2",
        }
    }

    /// The length in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash => 8,
            Self::Sha256 | Self::Blake2 => 32,
        }
    }

    /// The checksum of `data`, as it is stored.
    pub fn compute(self, data: &[u8]) -> Checksum {
        let mut bytes = [0; CHECKSUM_SIZE];
        match self {
            Self::Crc32c => bytes[..4].copy_from_slice(&crc32_iscsi(data).to_le_bytes()),
            Self::Xxhash => bytes[..8].copy_from_slice(&xxh64(data, 0).to_le_bytes()),
            Self::Sha256 => bytes.copy_from_slice(&Sha256::digest(data)),
            Self::Blake2 => bytes.copy_from_slice(&Blake2b::<Bytes32>::digest(data)),
        }
        Checksum { bytes, len: self.size() as u8 }
    }

    /// The checksum of a tree block or superblock: of all that follows its own checksum field.
    ///
    /// # Panics
    /// When `block` is shorter than the checksum field.
    pub fn compute_block(self, block: &[u8]) -> Checksum {
        self.compute(&block[CHECKSUM_SIZE..])
    }
}

impl fmt::Display for ChecksumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A checksum of any algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    bytes: [u8; CHECKSUM_SIZE],
    len: u8,
}

impl Checksum {
    /// A stored checksum; `None` if `stored` is longer than any checksum.
    pub fn from_stored(stored: &[u8]) -> Option<Self> {
        let mut bytes = [0; CHECKSUM_SIZE];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        Some(Self { bytes, len: stored.len() as u8 })
    }

    /// The bytes of the algorithm.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes as in a header: padded with zeros.
    pub fn padded(&self) -> [u8; CHECKSUM_SIZE] {
        self.bytes
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let of = |kind: ChecksumType| kind.compute(b"123456789").to_string();
        // Published check values of the four algorithms.
        assert_eq!(of(ChecksumType::Crc32c), "0x839206e3");
        assert_eq!(of(ChecksumType::Xxhash), "0x83aee640db41b88c");
        assert_eq!(
            of(ChecksumType::Sha256),
            "0x15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
        assert_eq!(
            of(ChecksumType::Blake2),
            "0x16e0bf1f85594a11e75030981c0b670370b3ad83a43f49ae58a2fd6f6513cde9"
        );
    }

    #[test]
    fn numbers_round_trip() {
        for kind in ChecksumType::ALL {
            assert_eq!(ChecksumType::from_disk(kind.to_disk()), Some(kind));
        }
        assert_eq!(ChecksumType::from_disk(4), None);
    }
}
