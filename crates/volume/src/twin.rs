//! A device that is to take the place of another: its twin.
//!
//! # Invariants
//! - From [`Volume::attach_twin`] on, every write to the device goes to the same address of its
//!   twin too, also while the device itself is missing. So once all that was there before is
//!   [copied](Volume::copy_to_other), both have the same content.
//! - A twin that fails is no loss for the file system: the failure is counted, the twin gets
//!   nothing more, and it takes no place.
//! - A twin has superblocks of its own, of device 0, as the kernel gives them. Nothing but these
//!   differs.
//! - When [`Volume::detach_twin`] returns, nothing writes to the twin any more.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_device::Device;
use larder_format::item::DevItem;
use larder_format::{Logical, Physical, Uuid};

use crate::chunk::Chunk;
use crate::geometry::Geometry;
use crate::member::{FoundTwin, TWIN_DEVID, Twin, VolumeDevice};
use crate::volume::Volume;

impl VolumeDevice {
    pub(crate) fn twin(&self) -> Option<Arc<Twin>> {
        self.twin.read().clone()
    }

    pub(crate) fn write_to_twin(&self, bufs: &[IoSlice<'_>], at: Physical) {
        if let Some(twin) = self.twin() {
            twin.write(bufs, at);
        }
    }

    /// Whether a twin is to take its place.
    pub fn has_twin(&self) -> bool {
        self.twin.read().is_some()
    }

    /// How many writes of its twin failed.
    pub fn twin_failures(&self) -> u64 {
        self.twin().map_or(0, |twin| twin.failures())
    }

    /// Makes readers use this device only where no other copy is good, or ends that.
    pub fn set_avoided(&self, is_avoided: bool) {
        self.is_avoided.store(is_avoided, Relaxed);
    }

    /// The twin's item, which no tree has.
    fn twin_item(&self, uuid: Uuid) -> DevItem {
        DevItem { devid: TWIN_DEVID.into(), uuid: *uuid.as_bytes(), ..self.dev_item() }
    }
}

impl Volume {
    /// Makes `device`, whose content is lost, the twin of a device: from now on it gets every write
    /// of that device, and commits write superblocks to it. Returns whether there is such a device.
    pub fn attach_twin(&self, devid: u64, device: Arc<dyn Device>, uuid: Uuid) -> bool {
        let Some(own) = self.device(devid) else { return false };
        let member = VolumeDevice::new(own.twin_item(uuid), device);
        let twin = Arc::new(Twin::new(member));
        // Each write either ended before, and is copied, or begins after and goes to both.
        self.without_writes(|| *own.twin.write() = Some(twin));
        true
    }

    /// Ends that a device has a twin. Returns it.
    pub fn detach_twin(&self, devid: u64) -> Option<Arc<VolumeDevice>> {
        let own = self.device(devid)?;
        let twin = self.without_writes(|| own.twin.write().take())?;
        let item = twin.member.dev_item();
        let device = twin.member.device()?.clone();
        Some(Arc::new(VolumeDevice::new(item, device)))
    }

    /// Puts the twin of a device in its place, with its id and UUID. The next superblocks say so:
    /// first on the twin, so that it is never absent. Returns the device that left.
    ///
    /// # Panics
    /// If the device has no twin.
    pub fn exchange_twin(&self, devid: u64) -> Arc<VolumeDevice> {
        self.without_writes(|| {
            self.change_geometry(|next| {
                let own = next.device(devid).expect("it has a twin").clone();
                let twin = own.twin.write().take().expect("it has a twin");
                let device = twin.member.device().expect("a twin is there").clone();
                let member = VolumeDevice::member(own.dev_item(), Some(device), own.generation());
                member.took_place.store(true, Relaxed);
                next.exchange_device(member);
                own
            })
        })
    }

    /// What device was found with the superblocks of a twin when the volume was opened.
    pub fn found_twin(&self) -> Option<&FoundTwin> {
        self.found_twin.as_ref()
    }

    /// Devices whose superblocks come before those of all others in this commit: a power cut finds
    /// them in their places if it finds anything of the commit.
    pub(crate) fn devices_that_took_places(&self) -> Vec<Arc<VolumeDevice>> {
        let took_place = |device: &&Arc<VolumeDevice>| device.took_place.swap(false, Relaxed);
        self.devices().iter().filter(took_place).cloned().collect()
    }
}

impl Geometry {
    /// Writes a range of a chunk to the twins of its devices.
    pub(crate) fn write_twins(&self, chunk: &Chunk, logical: Logical, mut bytes: &[u8]) {
        for segment in chunk.segments(logical, bytes.len() as u64) {
            let part = bytes.split_off(..segment.len_bytes as usize).expect("parts of the range");
            for address in chunk.addresses(&segment) {
                if let Some(device) = self.device(address.devid) {
                    device.write_to_twin(&[IoSlice::new(part)], address.physical);
                }
            }
        }
    }
}
