//! Counters, cheap enough to stay on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a volume since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bad copies that were overwritten with good content: tree blocks, and sectors of data.
    pub healed: u64,
    /// Tree blocks and sectors of data that were rebuilt from parity.
    pub rebuilt: u64,
    /// Tree blocks, and sectors of data, that were read although no checksum proves them right.
    pub unverified: u64,
    /// One entry for each device, in the order of [`crate::Volume::devices`].
    pub devices: Vec<DeviceStats>,
}

/// Counters of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Id of the device.
    pub devid: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Tree blocks and sectors of data whose checksum, address or structure was wrong.
    pub corruption_errors: u64,
    /// Tree blocks of another generation than expected.
    pub generation_errors: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) healed: Counter,
    pub(crate) rebuilt: Counter,
    pub(crate) unverified: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) read_errors: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) write_errors: Counter,
    pub(crate) flush_errors: Counter,
    pub(crate) corruption_errors: Counter,
    pub(crate) generation_errors: Counter,
}

impl DeviceCounters {
    pub(crate) fn snapshot(&self, devid: u64) -> DeviceStats {
        DeviceStats {
            devid,
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            read_errors: self.read_errors.get(),
            writes: self.writes.get(),
            written_bytes: self.written_bytes.get(),
            write_errors: self.write_errors.get(),
            flush_errors: self.flush_errors.get(),
            corruption_errors: self.corruption_errors.get(),
            generation_errors: self.generation_errors.get(),
        }
    }
}
