//! Devices that refuse writes, and that all writes leave out from then on.
//!
//! # Invariants
//! - A device is left out only if each chunk with a stripe there is whole without it, and without
//!   all devices whose content of the chunk is missing or out of date. Otherwise the caller gets
//!   the error.
//! - A device that is left out has missed commits (`outdated.rs`) from then on. Its content up to
//!   the last commit before is right, its superblocks are of that commit or of an earlier one,
//!   unless a crash comes before the next commit, and no reader trusts what it may have missed.
//! - Nothing that such a device missed is acknowledged as durable before a commit whose superblocks
//!   it did not get: its failure is *untold* until then. A log is not enough, since nothing but a
//!   generation tells the next opening which of two superblocks is newer.
//! - A device that is to be brought up to date first gets all writes again
//!   ([`Volume::readmit`]). It is up to date at the end only if it refused none of them.

use std::io::IoSlice;
use std::sync::atomic::Ordering::{Acquire, Release};

use larder_device::DeviceError;

use crate::chunk::{Chunk, DeviceAddress};
use crate::geometry::Geometry;
use crate::member::VolumeDevice;
use crate::volume::Volume;
use crate::write::WriteError;

impl VolumeDevice {
    /// Whether the device refused a write, and gets none until it is brought up to date.
    pub fn is_left_out(&self) -> bool {
        self.is_left_out.load(Acquire)
    }

    /// Whether new chunks may have stripes there.
    pub fn takes_chunks(&self) -> bool {
        self.written_to().is_some()
    }

    fn leave_out(&self, last_commit: u64) {
        if !self.is_stale() {
            *self.generation.lock() = Some(last_commit);
            self.is_stale.store(true, Release);
        }
        self.is_left_out.store(true, Release);
    }
}

impl Geometry {
    /// Writes buffers to a place on a device, one after the other, and leaves the device out if it
    /// fails and the volume can do without it.
    pub(crate) fn write_to(
        &self,
        address: DeviceAddress,
        bufs: &[IoSlice<'_>],
    ) -> Result<(), DeviceError> {
        let Some(device) = self.device(address.devid) else { return Ok(()) };
        device.write(bufs, address.physical).or_else(|error| self.do_without(device, error))
    }

    /// Flushes a device, or leaves it out if that fails and the volume can do without it.
    pub(crate) fn flush(&self, device: &VolumeDevice) -> Result<(), WriteError> {
        device.flush().or_else(|error| self.do_without(device, error))?;
        // A chunk may have come while the device failed.
        match self.chunk_that_needs(device).filter(|_| device.is_left_out()) {
            Some(chunk) => Err(WriteError::NotWritable { chunk: chunk.logical() }),
            None => Ok(()),
        }
    }

    /// Leaves a device out that failed, if the volume can do without it.
    pub(crate) fn do_without(
        &self,
        device: &VolumeDevice,
        error: DeviceError,
    ) -> Result<(), DeviceError> {
        let failures = &self.common.failures;
        let _deciding = failures.decide();
        if device.is_left_out() {
            return Ok(());
        }
        if !failures.are_tolerated() {
            return Err(error);
        }
        if self.chunk_that_needs(device).is_some() || !self.has_other_current(device) {
            return Err(error);
        }
        device.leave_out(failures.last_commit());
        failures.happen();
        tracing::error!(
            "device {} ({}) refuses writes, and is left out: others have a copy of everything; \
             it is brought up to date when the file system is opened for writing again, or scrubbed",
            device.devid(),
            device.name(),
        );
        Ok(())
    }

    /// A chunk of which a part is on no other device, or is out of date on them.
    fn chunk_that_needs(&self, device: &VolumeDevice) -> Option<&Chunk> {
        let devid = device.devid();
        let is_lost = |chunk: &Chunk, other: u64| {
            other == devid
                || self.device(other).is_none_or(|other| other.written_to().is_none())
                || self.is_outdated(chunk, other)
        };
        let needs = |chunk: &&Chunk| {
            chunk.stripes().iter().any(|stripe| stripe.devid == devid)
                && !chunk.survives(|stripe| is_lost(chunk, stripe.devid))
        };
        let chunks = self.chunks().iter().chain(&self.other_layout).map(|chunk| &**chunk);
        chunks.into_iter().find(needs)
    }

    /// Whether another device gets superblocks.
    fn has_other_current(&self, device: &VolumeDevice) -> bool {
        let is_current = |other: &VolumeDevice| other.written_to().is_some() && !other.is_stale();
        self.devices().iter().any(|other| other.devid() != device.devid() && is_current(other))
    }
}

impl Volume {
    /// Whether a device was left out, and no commit since tells the next opening so.
    pub fn has_untold_failure(&self) -> bool {
        self.geometry().common.failures.has_untold()
    }

    /// Lets writes reach the devices again that were left out. Each write ended before, or reaches
    /// them.
    pub fn readmit(&self) {
        let devices = self.devices();
        self.without_writes(|| {
            devices.iter().for_each(|device| device.is_left_out.store(false, Release));
        });
    }

    /// Marks devices that missed commits as up to date, also in the next superblocks, unless they
    /// are left out. The caller has brought their content up to date, and made it durable.
    pub fn end_staleness(&self) {
        let geometry = self.geometry();
        let _deciding = geometry.common.failures.decide();
        let current = geometry.devices().iter().filter(|device| !device.is_left_out());
        current.for_each(|device| device.is_stale.store(false, Release));
    }
}
