//! Reading: the ways to read a range, which is tried first, and what is said when all fail.
//!
//! # Invariants
//! - Content is returned only after it passed every check that the caller gave the means for.
//! - Healing overwrites only what is known to be worse than what replaces it: bytes that fail their
//!   own checksum, address or structure, or an older generation. A sound tree block that is newer
//!   than expected is left alone: then the expectation is what is old.

mod ahead;
mod block;
mod data;
mod rebuild;

use std::cmp::Reverse;
use std::fmt;

use larder_device::DeviceError;
use larder_format::{Checksum, FormatError, Key, Logical, Uuid};

pub use block::{BlockExpectation, BlockRead};
pub use data::DataRead;

use crate::chunk::{Chunk, Place, Segment};
use crate::member::VolumeDevice;
use crate::report::Fate;
use crate::volume::{ReadPolicy, Unmapped, Volume};

/// Bytes of address space that [`ReadPolicy::Spread`] gives to one mirror.
const REGION_BYTES: u64 = 1 << 20;
/// The most copies that any profile has, RAID1C4.
const MAX_MIRRORS: usize = 4;

/// Why one copy is no good.
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
    /// Too few of the other stripes are there.
    #[error("too few stripes are left to rebuild it")]
    NotRebuildable,
    /// The content does not have the checksum that it should have.
    #[error("its checksum is {computed}, wanted {wanted}")]
    Checksum {
        /// The checksum that is stored with the block, or in the checksum tree.
        wanted: Checksum,
        /// The checksum of the content.
        computed: Checksum,
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
    /// The tree block is older or newer than what points to it.
    #[error("its generation is {found}, wanted {wanted}")]
    Generation {
        /// What points to it says so.
        wanted: u64,
        /// Its header says so.
        found: u64,
    },
    /// The tree block has another level than its place in the tree.
    #[error("its level is {found}, wanted {wanted}")]
    Level {
        /// The level of its place.
        wanted: u8,
        /// Its header says so.
        found: u8,
    },
    /// The tree block belongs to another tree.
    #[error("it belongs to tree {found}, wanted {wanted}")]
    Owner {
        /// The tree that is being read.
        wanted: u64,
        /// Its header says so.
        found: u64,
    },
    /// The tree block does not begin with the key that its parent has for it.
    #[error("its first key is not {wanted}{}", Found(.found))]
    FirstKey {
        /// The key in its parent.
        wanted: Key,
        /// Its own first key.
        found: Option<Key>,
    },
}

struct Found<'a>(&'a Option<Key>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |key| write!(f, " but {key}"))
    }
}

impl CopyProblem {
    /// Whether the copy cannot be read, which is known without looking at it.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Missing | Self::OutOfDate | Self::NotRebuildable)
    }

    /// Whether good content may replace the copy.
    fn is_healable(&self) -> bool {
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

/// What to do with a copy on a device that missed commits, where it may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// It is lost: nothing tells whether it is right.
    Lost,
    /// It is used where all else fails: a checksum tells.
    LastResort,
}

/// A copy that is no good.
#[derive(Debug)]
pub struct FailedCopy {
    /// Which way to read it: counts from 0, below [`Volume::copies`].
    pub copy: usize,
    /// Where what is bad starts.
    pub logical: Logical,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Where that lies, unless it was rebuilt from parity.
    pub place: Option<Place>,
    /// Name of the device there.
    pub device: String,
    /// What is wrong with it.
    pub problem: CopyProblem,
}

impl fmt::Display for FailedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy, device, problem, .. } = self;
        match self.place {
            Some(Place { devid, physical, .. }) => {
                write!(f, "copy {copy} on device {devid} ({device}) at {physical}: {problem}")
            }
            None => write!(f, "copy {copy}, rebuilt from parity: {problem}"),
        }
    }
}

/// Content that no copy gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No chunk holds it.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
    /// A tree block of which no copy is good.
    #[error("tree block at {logical}{}: {}", Tree(.owner), Failures(.failures))]
    TreeBlock {
        /// Its address.
        logical: Logical,
        /// The tree that is being read, if the caller said.
        owner: Option<u64>,
        /// What is wrong with each copy.
        failures: Vec<FailedCopy>,
    },
    /// Data of which no copy is good.
    #[error("data at {logical}, {len_bytes} bytes: {}", Failures(.failures))]
    Data {
        /// Its address.
        logical: Logical,
        /// Its length in bytes.
        len_bytes: u64,
        /// What is wrong with each copy of its first sector.
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

impl Volume {
    /// Reads one copy of a range as it is, unverified. The copies are the mirrors, then the ways to
    /// rebuild from parity ([`Chunk::copies`]).
    pub fn read_copy(
        &self,
        logical: Logical,
        copy: usize,
        mut buf: &mut [u8],
    ) -> Result<(), ReadError> {
        self.for_each_chunk(logical, buf.len() as u64, |chunk, at, part_bytes| {
            let part = buf.split_off_mut(..part_bytes as usize).expect("parts make up the range");
            if copy >= chunk.copies() {
                return Err(ReadError::NoSuchCopy { logical: at, copy });
            }
            self.read_copy_in(chunk, at, copy, Outdated::LastResort, part).map_err(|problem| {
                ReadError::Data {
                    logical: at,
                    len_bytes: part_bytes,
                    failures: vec![self.failed_copy(chunk, at, part_bytes, copy, problem)],
                }
            })
        })
    }

    /// Reads one copy of a range of one chunk.
    fn read_copy_in(
        &self,
        chunk: &Chunk,
        logical: Logical,
        copy: usize,
        outdated: Outdated,
        mut buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        for segment in chunk.segments(logical, buf.len() as u64) {
            let part = buf.split_off_mut(..segment.len_bytes as usize).expect("parts of the range");
            match copy.checked_sub(chunk.mirrors()) {
                None if outdated == Outdated::Lost
                    && self.is_copy_outdated(chunk, &segment, copy) =>
                {
                    return Err(CopyProblem::OutOfDate);
                }
                None => self.read_place(chunk.place(&segment, copy), part)?,
                Some(attempt) => self.rebuild(chunk, &segment, attempt, outdated, part)?,
            }
        }
        Ok(())
    }

    pub(crate) fn read_place(&self, place: Place, buf: &mut [u8]) -> Result<(), CopyProblem> {
        let read = self.device(place.devid).and_then(|device| device.read(buf, place.physical));
        Ok(read.ok_or(CopyProblem::Missing)??)
    }

    /// The copies of a segment in the order in which they are tried: mirrors, as the read policy
    /// says, those that are missing last; then parity; then mirrors that are out of date.
    pub(crate) fn copy_order(
        &self,
        chunk: &Chunk,
        segment: &Segment,
    ) -> impl Iterator<Item = usize> + use<> {
        let (mirrors, copies) = (chunk.mirrors(), chunk.copies());
        let favourite = (segment.logical.0 / REGION_BYTES) as usize % mirrors;
        let mut order: [usize; MAX_MIRRORS] = std::array::from_fn(|copy| copy);
        order[..mirrors].sort_by_key(|&copy| {
            let devid = chunk.place(segment, copy).devid;
            let device = self.device(devid);
            let is_missing = device.is_none_or(VolumeDevice::is_missing);
            let is_outdated = self.is_outdated(chunk, devid);
            let is_preferred = self.read_policy == ReadPolicy::Prefer(devid);
            let distance = (copy + mirrors - favourite) % mirrors;
            (is_outdated, is_missing, Reverse(is_preferred), distance)
        });
        let outdated = (0..mirrors).filter(|&copy| self.is_copy_outdated(chunk, segment, copy));
        let current = mirrors - outdated.count();
        let outdated = order.into_iter().skip(current).take(mirrors - current);
        order.into_iter().take(current).chain(mirrors..copies).chain(outdated)
    }

    fn failed_copy(
        &self,
        chunk: &Chunk,
        logical: Logical,
        len_bytes: u64,
        copy: usize,
        problem: CopyProblem,
    ) -> FailedCopy {
        let segment = chunk.segment(logical, len_bytes);
        let place = (copy < chunk.mirrors()).then(|| chunk.place(&segment, copy));
        let device = place.and_then(|place| self.device(place.devid));
        if let Some(device) = device {
            match problem {
                CopyProblem::Generation { .. } => device.counters.generation_errors.add(1),
                CopyProblem::Missing | CopyProblem::OutOfDate | CopyProblem::Device(_) => {}
                _ => device.counters.corruption_errors.add(1),
            }
        }
        let device = device.map_or_else(String::new, VolumeDevice::name);
        FailedCopy { copy, logical, len_bytes, place, device, problem }
    }

    /// Writes good content over a bad copy and reports that; says whether it did.
    fn heal(&self, chunk: &Chunk, failure: &FailedCopy, good: &[u8]) -> bool {
        if failure.problem.is_absence() {
            return false;
        }
        let fate = self.overwrite(chunk, failure, good);
        self.report_bad_copy(failure, fate);
        fate == Fate::Healed
    }

    fn overwrite(&self, chunk: &Chunk, failure: &FailedCopy, good: &[u8]) -> Fate {
        let may_heal =
            self.is_writable && failure.copy < chunk.mirrors() && failure.problem.is_healable();
        if !may_heal {
            return Fate::Left;
        }
        let mut rest = good;
        let is_healed = chunk.segments(failure.logical, failure.len_bytes).all(|segment| {
            let (part, after) = rest.split_at(segment.len_bytes as usize);
            rest = after;
            self.write_place(chunk.place(&segment, failure.copy), part)
        });
        self.counters.healed.add(u64::from(is_healed));
        if is_healed { Fate::Healed } else { Fate::NotHealed }
    }

    /// A failure to heal is counted by the device and otherwise no error: the content was read.
    fn write_place(&self, place: Place, bytes: &[u8]) -> bool {
        self.device(place.devid).is_some_and(|device| {
            let bufs = [std::io::IoSlice::new(bytes)];
            device.written_to().is_some() && device.write(&bufs, place.physical).is_ok()
        })
    }
}
