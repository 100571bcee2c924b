//! A device that counts its calls.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::total_len;
use larder_device::{Device, DeviceError};

/// Counts calls, successful or not, on their way to another device.
#[derive(Debug)]
pub struct CountingDevice {
    inner: Arc<dyn Device>,
    reads: Counter,
    writes: Counter,
    readaheads: Counter,
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Counter {
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// How often a [`CountingDevice`] was called, and for how many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Writes, a vectored one counting once.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Readahead hints.
    pub readaheads: u64,
    /// Bytes of the hints.
    pub readahead_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl CountingDevice {
    /// Counts the calls that reach `inner` through the result.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self {
            inner,
            reads: Counter::default(),
            writes: Counter::default(),
            readaheads: Counter::default(),
            flushes: AtomicU64::new(0),
        }
    }

    /// The counts so far. Calls under way may be counted in part.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: load(&self.reads.calls),
            read_bytes: load(&self.reads.bytes),
            writes: load(&self.writes.calls),
            written_bytes: load(&self.writes.bytes),
            readaheads: load(&self.readaheads.calls),
            readahead_bytes: load(&self.readaheads.bytes),
            flushes: load(&self.flushes),
        }
    }
}

impl Counter {
    fn add(&self, len_bytes: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len_bytes, Ordering::Relaxed);
    }
}

impl Device for CountingDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.reads.add(buf.len() as u64);
        self.inner.read_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.writes.add(total_len(bufs));
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.readaheads.add(len_bytes);
        self.inner.readahead(offset, len_bytes);
    }
}
