//! Reading one copy, and the order in which copies are tried.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::Logical;

use crate::chunk::{Chunk, DeviceAddress, Segment};
use crate::geometry::Geometry;
use crate::problem::{CopyProblem, FailedCopy, ReadError};
use crate::volume::{ReadPolicy, Volume};

/// Bytes of address space that [`ReadPolicy::Spread`] gives to one mirror.
const REGION_BYTES: u64 = 1 << 20;
/// The most copies that any profile has, RAID1C4.
const MAX_MIRRORS: usize = 4;

/// How to treat a copy that may be out of date, because its device missed commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// It is lost: nothing tells whether it is right.
    Lost,
    /// It is the last resort: a checksum tells.
    LastResort,
}

impl Volume {
    /// Reads one copy of a range, unverified. The copies are the mirrors, then the ways to rebuild
    /// from parity ([`Chunk::copies`]).
    pub fn read_copy(
        &self,
        logical: Logical,
        copy: usize,
        mut buf: &mut [u8],
    ) -> Result<(), ReadError> {
        let geometry = self.geometry();
        geometry.for_each_chunk(logical, buf.len() as u64, |chunk, at, part_bytes| {
            let part = buf.split_off_mut(..part_bytes as usize).expect("parts make up the range");
            if copy >= chunk.copies() {
                return Err(ReadError::NoSuchCopy { logical: at, copy });
            }
            geometry.read_copy(chunk, at, copy, Outdated::LastResort, part).map_err(|problem| {
                ReadError::Data {
                    logical: at,
                    len_bytes: part_bytes,
                    failures: vec![geometry.failed_copy(chunk, at, part_bytes, copy, problem)],
                }
            })
        })
    }
}

impl Geometry {
    /// Reads one copy of a range of one chunk.
    pub(super) fn read_copy(
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
                None => self.read_device(chunk.address(&segment, copy), part)?,
                Some(attempt) => self.rebuild(chunk, &segment, attempt, outdated, part)?,
            }
        }
        Ok(())
    }

    /// Tells the device of a copy that a read failed a check. Returns whether another one may not.
    pub(super) fn doubt(
        &self,
        chunk: &Chunk,
        logical: Logical,
        len_bytes: u64,
        copy: usize,
    ) -> bool {
        let doubt = |segment: &Segment| {
            let address = chunk.address(segment, copy);
            let device = self.device(address.devid).and_then(|device| device.device());
            device.is_some_and(|device| device.doubt(address.physical.0, segment.len_bytes))
        };
        copy < chunk.mirrors()
            && chunk.segments(logical, len_bytes).filter(|segment| doubt(segment)).count() > 0
    }

    pub(crate) fn read_device(
        &self,
        address: DeviceAddress,
        buf: &mut [u8],
    ) -> Result<(), CopyProblem> {
        let read = self.device(address.devid).and_then(|device| device.read(buf, address.physical));
        Ok(read.ok_or(CopyProblem::Missing)??)
    }

    /// The copies of a segment in the order in which they are tried: mirrors, as the read policy
    /// says, avoided ones later, and missing ones last; then parity; then mirrors that are out of
    /// date.
    pub(crate) fn copy_order(
        &self,
        chunk: &Chunk,
        segment: &Segment,
    ) -> impl Iterator<Item = usize> + use<> {
        let (mirrors, copies) = (chunk.mirrors(), chunk.copies());
        let favourite = (segment.logical.0 / REGION_BYTES) as usize % mirrors;
        let mut order: [usize; MAX_MIRRORS] = std::array::from_fn(|copy| copy);
        order[..mirrors].sort_by_key(|&copy| {
            let devid = chunk.address(segment, copy).devid;
            let device = self.device(devid);
            let is_missing = device.is_none_or(|device| device.is_missing());
            let is_outdated = self.is_outdated(chunk, devid);
            let is_avoided = device.is_some_and(|device| device.is_avoided.load(Relaxed));
            let is_preferred = self.common.read_policy == ReadPolicy::Prefer(devid);
            let distance = (copy + mirrors - favourite) % mirrors;
            (is_outdated, is_missing, is_avoided, Reverse(is_preferred), distance)
        });
        let outdated = (0..mirrors).filter(|&copy| self.is_copy_outdated(chunk, segment, copy));
        let current = mirrors - outdated.count();
        let outdated = order.into_iter().skip(current).take(mirrors - current);
        order.into_iter().take(current).chain(mirrors..copies).chain(outdated)
    }

    pub(super) fn failed_copy(
        &self,
        chunk: &Chunk,
        logical: Logical,
        len_bytes: u64,
        copy: usize,
        problem: CopyProblem,
    ) -> FailedCopy {
        let segment = chunk.segment(logical, len_bytes);
        let address = (copy < chunk.mirrors()).then(|| chunk.address(&segment, copy));
        let device = address.and_then(|address| self.device(address.devid));
        if let Some(device) = device {
            match problem {
                CopyProblem::Generation { .. } => device.counters.generation_errors.add(1),
                CopyProblem::Missing | CopyProblem::OutOfDate | CopyProblem::Device(_) => {}
                _ => device.counters.corruption_errors.add(1),
            }
        }
        let device = device.map_or_else(String::new, |device| device.name());
        FailedCopy { copy, logical, len_bytes, address, device, problem }
    }
}
