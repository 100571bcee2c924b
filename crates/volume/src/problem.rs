//! Problems of a copy, and why a range cannot be read.

use std::fmt;

use larder_device::DeviceError;
use larder_format::{Checksum, FormatError, Key, Logical, Uuid};

use crate::chunk::DeviceAddress;

/// No chunk contains the whole of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no chunk maps {len_bytes} bytes at logical address {logical}")]
pub struct Unmapped {
    /// The first address outside of all chunks, or the start of a tree block that crosses its
    /// chunk's end.
    pub logical: Logical,
    /// Bytes from there.
    pub len_bytes: u64,
}

/// Why a copy is bad.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyProblem {
    /// Its device is missing.
    #[error("the device is missing")]
    Missing,
    /// Its device missed commits, and there is no checksum to tell whether it is right.
    #[error("the device missed commits, and there is no checksum")]
    OutOfDate,
    /// Its device cannot read it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Too few of the other stripes are available.
    #[error("too few stripes are left to rebuild it")]
    NotRebuildable,
    /// The content has the wrong checksum.
    #[error("its checksum is {computed}, wanted {wanted}")]
    Checksum {
        /// The checksum that is stored with the block, or in the checksum tree.
        wanted: Checksum,
        /// The checksum of the content.
        computed: Checksum,
    },
    /// It is not like another copy, and there is no checksum to tell which one is right.
    #[error("it differs from copy {from}, and there is no checksum")]
    Differs {
        /// The first copy that can be read.
        from: usize,
    },
    /// The tree block belongs at another address.
    #[error("it is the tree block of logical address {found}")]
    Address {
        /// The address in its header.
        found: Logical,
    },
    /// The tree block belongs to another file system.
    #[error("it is a tree block of another file system, {found}")]
    Fsid {
        /// The file system's id in its header.
        found: Uuid,
    },
    /// The tree block's structure is broken.
    #[error(transparent)]
    Structure(#[from] FormatError),
    /// The tree block is older or newer than its pointer says.
    #[error("its generation is {found}, wanted {wanted}")]
    Generation {
        /// The generation in the pointer to it.
        wanted: u64,
        /// The generation in its header.
        found: u64,
    },
    /// The tree block has another level than its place in the tree.
    #[error("its level is {found}, wanted {wanted}")]
    Level {
        /// The level of its place.
        wanted: u8,
        /// The level in its header.
        found: u8,
    },
    /// The tree block belongs to another tree.
    #[error("it belongs to tree {found}, wanted {wanted}")]
    Owner {
        /// The tree that is being read.
        wanted: u64,
        /// The tree in its header.
        found: u64,
    },
    /// The tree block does not begin with the key that its parent has for it.
    #[error("its first key is not {wanted}{}", FoundKey(.found))]
    FirstKey {
        /// The key in its parent.
        wanted: Key,
        /// Its own first key.
        found: Option<Key>,
    },
}

struct FoundKey<'a>(&'a Option<Key>);

impl fmt::Display for FoundKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |key| write!(f, " but {key}"))
    }
}

impl CopyProblem {
    /// Whether the copy is known to be unreadable without a read.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Missing | Self::OutOfDate | Self::NotRebuildable)
    }

    /// Whether good content may replace the copy.
    pub(crate) fn is_healable(&self) -> bool {
        match self {
            Self::Device(_)
            | Self::Checksum { .. }
            | Self::Address { .. }
            | Self::Fsid { .. }
            | Self::Structure(_) => true,
            Self::Generation { wanted, found } => found < wanted,
            _ => false,
        }
    }
}

/// A bad copy.
#[derive(Debug)]
pub struct FailedCopy {
    /// The way to read it: counts from 0, below [`Volume::copies`](crate::Volume::copies).
    pub copy: usize,
    /// Where the bad part starts.
    pub logical: Logical,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// The address on a device, unless it was rebuilt from parity.
    pub address: Option<DeviceAddress>,
    /// Name of that device.
    pub device: String,
    /// The problem.
    pub problem: CopyProblem,
}

impl fmt::Display for FailedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy, device, problem, .. } = self;
        match self.address {
            Some(DeviceAddress { devid, physical, .. }) => {
                write!(f, "copy {copy} on device {devid} ({device}) at {physical}: {problem}")
            }
            None => write!(f, "copy {copy}, rebuilt from parity: {problem}"),
        }
    }
}

/// Content without a good copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No chunk contains it.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
    /// A tree block without a good copy.
    #[error("tree block at {logical}{}: {}", Tree(.owner), Failures(.failures))]
    TreeBlock {
        /// Its address.
        logical: Logical,
        /// The tree that is being read, if the caller knows it.
        owner: Option<u64>,
        /// What is wrong with each copy.
        failures: Vec<FailedCopy>,
    },
    /// Data without a good copy.
    #[error("data at {logical}, {len_bytes} bytes: {}", Failures(.failures))]
    Data {
        /// Its address.
        logical: Logical,
        /// Its length in bytes.
        len_bytes: u64,
        /// The problem of each copy of its first sector.
        failures: Vec<FailedCopy>,
    },
    /// There are not so many copies.
    #[error("there is no copy {copy} at {logical}")]
    NoSuchCopy {
        /// The address.
        logical: Logical,
        /// The number asked for.
        copy: usize,
    },
    /// Checksums were given for a range that is not whole sectors, or not one for each sector.
    #[error("data at {logical}, {len_bytes} bytes, does not fit the checksums given for it")]
    Misaligned {
        /// Its address.
        logical: Logical,
        /// Its length in bytes.
        len_bytes: u64,
    },
}

struct Tree<'a>(&'a Option<u64>);

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |owner| write!(f, " of tree {}", owner as i64))
    }
}

struct Failures<'a>(&'a [FailedCopy]);

/// A hostile chunk can have very many copies.
const FAILURES_SHOWN: usize = 8;

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, failure) in self.0.iter().take(FAILURES_SHOWN).enumerate() {
            write!(f, "{}{failure}", if index == 0 { "" } else { "; " })?;
        }
        match self.0.len().saturating_sub(FAILURES_SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
