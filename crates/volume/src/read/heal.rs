//! Repairing bad copies, and reporting them.

use std::io::IoSlice;

use crate::chunk::{Chunk, DeviceAddress};
use crate::geometry::Geometry;
use crate::problem::{FailedCopy, ReadError};

/// The fate of a bad copy if there is a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was overwritten with good content.
    Healed,
    /// That failed.
    NotHealed,
    /// It was left unchanged.
    Left,
}

impl Geometry {
    /// Overwrites a bad copy with good content and reports that. Returns whether it did.
    pub(super) fn heal(&self, chunk: &Chunk, failure: &FailedCopy, good: &[u8]) -> bool {
        if failure.problem.is_absence() {
            return false;
        }
        let fate = self.overwrite(chunk, failure, good);
        self.report_bad_copy(failure, fate);
        fate == Fate::Healed
    }

    fn overwrite(&self, chunk: &Chunk, failure: &FailedCopy, good: &[u8]) -> Fate {
        let may_heal = self.common.is_writable
            && failure.copy < chunk.mirrors()
            && failure.problem.is_healable();
        if !may_heal {
            return Fate::Left;
        }
        let mut rest = good;
        let is_healed = chunk.segments(failure.logical, failure.len_bytes).all(|segment| {
            let (part, after) = rest.split_at(segment.len_bytes as usize);
            rest = after;
            self.write_device(chunk.address(&segment, failure.copy), part)
        });
        self.common.counters.healed.add(u64::from(is_healed));
        if is_healed { Fate::Healed } else { Fate::NotHealed }
    }

    /// The device counts a failed repair. Otherwise it is no error, since the reader has the
    /// content.
    fn write_device(&self, address: DeviceAddress, bytes: &[u8]) -> bool {
        self.device(address.devid).is_some_and(|device| {
            let bufs = [IoSlice::new(bytes)];
            device.written_to().is_some() && device.write(&bufs, address.physical).is_ok()
        })
    }

    /// Reports a bad copy of content that another copy gave.
    fn report_bad_copy(&self, failure: &FailedCopy, fate: Fate) {
        let FailedCopy { logical, len_bytes, address, .. } = failure;
        let fate = match fate {
            Fate::Healed => "healed from a good copy",
            Fate::NotHealed => "it could not be overwritten; a good copy was read",
            Fate::Left => "left as it is; a good copy was read",
        };
        let device = address.and_then(|address| self.device(address.devid));
        device.map_or(&self.common.reports, |device| &device.reports).report(|left_out| {
            tracing::warn!(
                "a bad copy of {len_bytes} bytes at logical address {logical}: {failure}: \
                 {fate}{left_out}"
            );
        });
    }

    /// Reports content that cannot be read.
    pub(super) fn report_lost(&self, error: &ReadError) {
        self.common.reports.report(|left_out| tracing::error!("no good copy: {error}{left_out}"));
    }
}
