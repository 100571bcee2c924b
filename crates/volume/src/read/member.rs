//! One copy on one device: what a scrub reads, doubts, counts and overwrites.
//!
//! # Invariants
//! - Nothing is counted as an error here: the caller knows how much of what it read is bad.

use std::io::IoSlice;

use larder_format::Physical;
use larder_locks::elsewhere;

use crate::errors::DeviceErrors;
use crate::problem::CopyProblem;
use crate::volume::Volume;
use crate::write::WriteError;

impl Volume {
    /// Reads from one device, unverified.
    pub fn read_member(&self, devid: u64, at: Physical, buf: &mut [u8]) -> Result<(), CopyProblem> {
        let member = self.device(devid).ok_or(CopyProblem::Missing)?;
        let device = member.device().ok_or(CopyProblem::Missing)?;
        member.counters.reads.add(1);
        member.counters.read_bytes.add(buf.len() as u64);
        Ok(elsewhere(|| device.read_at(buf, at.0))?)
    }

    /// Tells a device that what it read failed a check. Returns whether another read may not.
    pub fn doubt_member(&self, devid: u64, at: Physical, len_bytes: u64) -> bool {
        let member = self.device(devid);
        let device = member.as_ref().and_then(|member| member.device());
        device.is_some_and(|device| device.doubt(at.0, len_bytes))
    }

    /// Overwrites what one device has of a range. The caller keeps
    /// [others from writing](Self::without_writes), and knows that nothing newer is there. Returns
    /// whether it was written: a seed and a missing device are not.
    pub fn write_member(&self, devid: u64, at: Physical, bytes: &[u8]) -> Result<bool, WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        let member = self.device(devid).filter(|member| member.written_to().is_some());
        let Some(member) = member else { return Ok(false) };
        member.write(&[IoSlice::new(bytes)], at)?;
        self.geometry().common.counters.healed.add(1);
        Ok(true)
    }

    /// Adds errors that a caller found to those of a device.
    pub fn count_errors(&self, devid: u64, errors: DeviceErrors) {
        let Some(member) = self.device(devid) else { return };
        let DeviceErrors { writes, reads, flushes, corruptions, generations } = errors;
        member.counters.write_errors.add(writes);
        member.counters.read_errors.add(reads);
        member.counters.flush_errors.add(flushes);
        member.counters.corruption_errors.add(corruptions);
        member.counters.generation_errors.add(generations);
    }
}
