//! Every extent in the extent tree, in little memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use larder_format::item::{EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK};

use crate::context::Context;
use crate::evidence::ChecksumEvidence;
use crate::report::Location;

/// An extent.
#[derive(Debug)]
pub(crate) struct ExtentRecord {
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
    pub(crate) generation: u64,
    /// Fingerprints of the references in the extent tree, less those that were found.
    balance: AtomicU64,
    flags: u16,
    is_written: AtomicBool,
    /// Level of a tree block.
    pub(crate) level: u8,
}

impl ExtentRecord {
    pub(crate) fn new(start: u64, len_bytes: u64, generation: u64, flags: u64, level: u8) -> Self {
        let flags = flags as u16;
        let (balance, is_written) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { start, len_bytes, generation, balance, flags, is_written, level }
    }

    /// The address after the last.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.len_bytes)
    }

    pub(crate) fn is_data(&self) -> bool {
        u64::from(self.flags) & EXTENT_FLAG_DATA != 0
    }

    pub(crate) fn is_tree_block(&self) -> bool {
        u64::from(self.flags) & EXTENT_FLAG_TREE_BLOCK != 0
    }

    /// Whether the block's references count its address and not its owner.
    pub(crate) fn is_full_back_ref(&self) -> bool {
        u64::from(self.flags) & EXTENT_FLAG_FULL_BACKREF != 0
    }

    /// Adds references from the extent tree.
    pub(crate) fn credit(&self, fingerprint: u64, count: u32) {
        let sum = fingerprint.wrapping_mul(u64::from(count));
        self.balance.fetch_add(sum, Ordering::Relaxed);
    }

    /// Subtracts a reference that was found.
    pub(crate) fn debit(&self, fingerprint: u64) {
        self.balance.fetch_sub(fingerprint, Ordering::Relaxed);
    }

    /// Notes that a file has data in it, and not only preallocated space.
    pub(crate) fn set_written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }

    /// Whether any file has data in it. Valid once all leaves of files were read.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Whether the references found are those in the extent tree.
    pub(crate) fn is_balanced(&self) -> bool {
        self.balance.load(Ordering::Relaxed) == 0
    }
}

/// All extents in order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct ExtentTable {
    pub(crate) records: Vec<ExtentRecord>,
    /// Owners of data extents, by number of record, where simple quotas keep them.
    pub(crate) owners: Vec<(usize, u64)>,
    /// Whether all of the extent tree could be read. If not, a missing extent proves nothing.
    pub(crate) is_whole: bool,
    /// Preallocated ranges of files whose extents have checksums there: start of the extent, and
    /// bytes.
    checksums_of_room: Mutex<Vec<(u64, Location, u64)>>,
}

impl ExtentTable {
    /// The number of the extent that starts at `start`.
    pub(crate) fn find(&self, start: u64) -> Option<usize> {
        self.records.binary_search_by_key(&start, |record| record.start).ok()
    }

    /// The extent that starts at `start`.
    pub(crate) fn get(&self, start: u64) -> Option<&ExtentRecord> {
        self.find(start).map(|index| &self.records[index])
    }

    /// Notes that a file has only preallocated `bytes` of an extent, which have checksums.
    pub(crate) fn note_checksums_of_room(&self, start: u64, location: Location, bytes: u64) {
        let mut noted = self.checksums_of_room.lock().unwrap_or_else(PoisonError::into_inner);
        noted.push((start, location, bytes));
    }

    /// Reports checksums of extents in which no file has data. Call it when all leaves of files
    /// were read.
    pub(crate) fn check_checksums_of_room(&self, context: &Context<'_>) {
        let noted = self.checksums_of_room.lock().unwrap_or_else(PoisonError::into_inner);
        for (start, location, bytes) in &*noted {
            if self.get(*start).is_some_and(|extent| !extent.is_written()) {
                context.find(*location, ChecksumEvidence::OfRoom { bytes: *bytes });
            }
        }
    }

    /// The extents that have bytes in a range. Of overlapping extents, which are reported when they
    /// are read, the last that starts before the range counts.
    pub(crate) fn within(&self, start: u64, end: u64) -> &[ExtentRecord] {
        let after = self.records.partition_point(|record| record.start <= start);
        let reaches = |index: &usize| self.records[*index].end() > start;
        let first = after.checked_sub(1).filter(reaches).unwrap_or(after);
        let rest = &self.records[first..];
        &rest[..rest.partition_point(|record| record.start < end)]
    }
}
