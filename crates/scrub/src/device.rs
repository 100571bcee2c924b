//! The scrub of one device: what it is about, and why it may end.

use std::io;
use std::sync::Arc;

use larder_jobs::{Cancelled, Job};
use larder_transaction::Error;
use larder_volume::{Chunk, DeviceErrors};

use crate::counters::Progress;
use crate::finding::Finding;
use crate::state::Target;

/// A scrub of one device.
pub struct Scrub<'s> {
    /// The file system.
    pub target: Target<'s>,
    /// Id of the device.
    pub device: u64,
    /// Addresses of the device before this are left out.
    pub start: u64,
    /// Addresses of the device from this on are left out.
    pub end: u64,
    /// Whether nothing is repaired.
    pub is_read_only: bool,
    /// Its job.
    pub job: &'s Job,
    /// Its counters.
    pub progress: &'s Progress,
    /// Is called with all that is bad, in the thread that verifies.
    pub found: &'s (dyn Fn(Finding) + Sync),
}

/// Why a scrub ended early.
#[derive(Debug)]
pub enum Stopped {
    /// The job was cancelled.
    Cancelled,
    /// The device is missing, or there is none of this id.
    NoDevice,
    /// The system starts no thread for it.
    NoThread(io::Error),
    /// The trees, or the devices, fail.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Cancelled> for Stopped {
    fn from(Cancelled: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// One device's part of a chunk.
pub(crate) struct Part {
    pub(crate) chunk: Arc<Chunk>,
    /// The index of the chunk's stripe.
    pub(crate) stripe: usize,
}

impl Part {
    pub(crate) fn start(&self) -> u64 {
        self.chunk.stripes()[self.stripe].physical.0
    }

    pub(crate) fn end(&self) -> u64 {
        self.start() + self.chunk.bytes_per_stripe()
    }

    /// The way to read the chunk that this device is.
    pub(crate) fn copy(&self) -> usize {
        if self.chunk.has_parity() { 0 } else { self.stripe % self.chunk.copies() }
    }
}

impl Scrub<'_> {
    /// Counts errors of the device, as the kernel does.
    pub(crate) fn count_errors(&self, errors: DeviceErrors) {
        self.target.volume().count_errors(self.device, errors);
    }
}
