//! A scrub of one device.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_jobs::{Cancelled, Job};
use larder_transaction::Error;
use larder_volume::{Chunk, DeviceErrors};

use crate::counters::Progress;
use crate::finding::Finding;
use crate::state::{State, Target};
use crate::superblocks::scrub_superblocks;
use crate::walk::scrub_part;

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
    /// Scrubs the device.
    pub fn run(&self) -> Result<(), Stopped> {
        let member = self.target.volume().device(self.device);
        let member = member.filter(|member| !member.is_missing()).ok_or(Stopped::NoDevice)?;
        let before = self.progress.get();
        scrub_superblocks(self, &member);
        let mut at = self.start;
        while let ControlFlow::Continue(()) = self.scrub_next(&mut at)? {}
        let after = self.progress.get();
        if let Some(manager) = self.target.manager().filter(|_| !self.is_read_only) {
            if after.super_errors > before.super_errors {
                // Writes all copies.
                manager.change_superblock(|_| ());
                manager.commit()?;
            } else if after.corrected_errors > before.corrected_errors {
                manager.volume().flush().map_err(Error::from)?;
            }
        }
        Ok(())
    }

    /// Scrubs the next part of a chunk from an address on, which it moves along.
    fn scrub_next(&self, at: &mut u64) -> Result<ControlFlow<()>, Stopped> {
        let state = self.target.state()?;
        let Some(part) = next_part(&state, self.device, *at).filter(|part| part.start() < self.end)
        else {
            return Ok(ControlFlow::Break(()));
        };
        let scrubbed = scrub_part(self, &state, &part, (*at).max(part.start()));
        match scrubbed {
            Ok(reached) => {
                *at = reached;
                Ok(ControlFlow::Continue(()))
            }
            // Whatever was read was of no state.
            Err((reached, Stopped::Failed(_))) if !state.is_kept() => {
                *at = reached;
                Ok(ControlFlow::Continue(()))
            }
            Err((_, stopped)) => Err(stopped),
        }
    }

    /// Counts errors of the device, as the kernel does.
    pub(crate) fn count_errors(&self, errors: DeviceErrors) {
        self.target.volume().count_errors(self.device, errors);
    }
}

/// The first part of a chunk on a device that ends after an address.
fn next_part(state: &State, device: u64, at: u64) -> Option<Part> {
    let parts = state.geometry.chunks().iter().flat_map(|chunk| {
        let stripes = chunk.stripes().iter().enumerate();
        let own = stripes.filter(move |(_, stripe)| stripe.devid == device);
        own.map(move |(stripe, _)| Part { chunk: chunk.clone(), stripe })
    });
    parts.filter(|part| part.end() > at).min_by_key(Part::start)
}
