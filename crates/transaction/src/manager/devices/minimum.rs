//! Making the file system on a device as small as it can be.
//!
//! Content moves together (`gather.rs`), block groups are cut after it, their stripes move down as
//! far as there is room, and holes that are left get the end of the last group (`fold.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_format::Logical;
use larder_volume::layout::{DeviceSpace, spare_system_blocks};
use larder_volume::{Chunk, ChunkStripe};

use super::resize::Limited;
use super::{DeviceWork, ITEMS_PER_DEVICE, Tell, no_device};
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::space::{Group, Priority, SpaceKind};

/// What stays free for trees, so that commits have room until devices are longer again: as
/// much as inserting so many items takes at worst, and a share of what the trees have.
const SPARE_METADATA_ITEMS: u64 = 2 * ITEMS_PER_DEVICE;
const SPARE_METADATA_SHARE: u64 = 32;
/// Items that a cut changes, besides those of its stripes and of what is free.
const ITEMS: u64 = 8;

impl TransactionManager {
    /// Makes the file system on a device as small as it can be, and commits. Returns its size.
    /// Calls `tell` in this thread with the progress.
    ///
    /// Without a free space tree, what is free between extents stays.
    ///
    /// # Errors
    /// If `tell` ends it, or a device fails. What was cut and moved before stays so.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn minimize_device(&self, devid: u64, tell: &Tell<'_>) -> Result<(u64, Moved)> {
        let mut work = DeviceWork::begin(self, tell)?;
        let device = self.volume().device(devid).ok_or_else(|| no_device(devid))?;
        if device.is_missing() || device.is_seed() {
            return Err(Error::Devices(format!("device {devid} cannot be written")));
        }
        // What is empty goes by itself, once a commit has freed what it had.
        for _ in 0..2 {
            self.change_superblock(|_| ());
            self.commit()?;
        }
        let order = self.space().allocate_lowest_first();
        // The other stripes of its groups have no room to move once it has ended.
        let partners: BTreeSet<u64> = work
            .groups_on(devid)
            .iter()
            .flat_map(|group| {
                group.chunk().stripes().iter().map(|stripe| stripe.devid).collect::<Vec<_>>()
            })
            .collect();
        for partner in partners {
            work.gather(partner)?;
            work.pack(partner)?;
            work.fold(partner, &order)?;
        }
        drop(order);
        let total_bytes = work.end(devid)?;
        Ok((total_bytes, work.moved))
    }
}

impl DeviceWork<'_> {
    /// Cuts the block groups on a device after their last content.
    pub(super) fn cut(&mut self, devid: u64) -> Result<()> {
        let manager = self.manager;
        for group in self.groups_on(devid) {
            let chunk = group.chunk();
            let spare_bytes = self.spare_bytes(&group).saturating_sub(group.scattered_bytes());
            if group.cut_chunk(spare_bytes).is_none() {
                continue;
            }
            let free = group.len_bytes() / u64::from(manager.volume().sectorsize());
            let items = ITEMS + 2 * chunk.stripes().len() as u64 + (free / 4096).min(1024);
            let handle = match manager.start(items, Priority::Cleaning) {
                // It stays as long as it is.
                Err(Error::NoSpace { .. }) => continue,
                handle => handle?,
            };
            let cut = manager.bookkeeping.cut_group(&group, spare_bytes);
            cut.inspect_err(|error| manager.abort(error.clone()))?;
            handle.end()?;
        }
        manager.commit()?;
        Ok(())
    }

    /// What stays free in a group, wherever it is.
    pub(super) fn spare_bytes(&self, group: &Group) -> u64 {
        let volume = self.manager.volume();
        let nodesize = u64::from(volume.nodesize());
        match SpaceKind::of_types(group.flags()) {
            Some(SpaceKind::Data) => 0,
            Some(SpaceKind::Metadata) => {
                let least = self.manager.space().insertion_bytes(SPARE_METADATA_ITEMS);
                least + group.used() / SPARE_METADATA_SHARE
            }
            Some(SpaceKind::System) | None => {
                spare_system_blocks(volume.devices().len()) * nodesize
            }
        }
    }

    /// The groups with a stripe on a device.
    pub(super) fn groups_on(&self, devid: u64) -> Vec<Arc<Group>> {
        let is_on_it =
            |group: &Arc<Group>| group.chunk().stripes().iter().any(|stripe| stripe.devid == devid);
        self.manager.space().groups().into_iter().filter(is_on_it).collect()
    }

    /// Ends the device after its last stripe. Returns its size.
    fn end(&mut self, devid: u64) -> Result<u64> {
        let manager = self.manager;
        let device = manager.volume().device(devid).ok_or_else(|| no_device(devid))?;
        let before = device.dev_item().total_bytes.get();
        let end = manager
            .space()
            .with_devices(|devices| devices.get(devid).map_or(before, DeviceSpace::end_of_chunks));
        if end >= before {
            return Ok(before);
        }
        let mut total_bytes = before;
        manager.space().change_devices(|devices| {
            devices.change(devid, |device| {
                device.total_bytes = device.end_of_chunks().min(before);
                total_bytes = device.total_bytes;
            });
        });
        self.change_device(devid, |item| item.total_bytes = total_bytes.into())?;
        Ok(total_bytes)
    }

    /// Moves the stripes on a device down, one after the other.
    pub(super) fn pack(&mut self, devid: u64) -> Result<()> {
        let manager = self.manager;
        let before = manager
            .space()
            .with_devices(|devices| devices.get(devid).map_or(0, |device| device.total_bytes));
        let mut stripes: Vec<(u64, Logical)> = Vec::new();
        for group in manager.space().groups() {
            let chunk = group.chunk();
            let on_it = chunk.stripes().iter().filter(|stripe| stripe.devid == devid);
            stripes.extend(on_it.map(|stripe| (stripe.physical.0, chunk.logical())));
        }
        stripes.sort_unstable();
        for (physical, start) in stripes {
            let Some(group) = manager.space().group_at(start) else { continue };
            let chunk = group.chunk();
            let is_it =
                |stripe: &&ChunkStripe| (stripe.devid, stripe.physical.0) == (devid, physical);
            let Some(stripe) = chunk.stripes().iter().find(is_it).copied() else { continue };
            let lowest =
                manager.space().with_devices(|devices| devices.lowest_place(&chunk, &stripe));
            if lowest.is_none_or(|lowest| lowest >= physical) {
                continue;
            }
            if self.move_below(&chunk, stripe, physical)? {
                continue;
            }
            // Its own place is part of where it goes: it has to make room first.
            if !self.move_below(&chunk, stripe, before)? {
                continue;
            }
            let away = group.chunk();
            let is_new =
                |other: &&ChunkStripe| other.devid == devid && !chunk.stripes().contains(other);
            if let Some(stripe) = away.stripes().iter().find(is_new).copied() {
                self.move_below(&away, stripe, stripe.physical.0)?;
            }
        }
        Ok(())
    }

    /// Moves a stripe to a place on its device before an address, or to another device. Returns
    /// whether there was one.
    fn move_below(&mut self, chunk: &Chunk, stripe: ChunkStripe, end: u64) -> Result<bool> {
        let manager = self.manager;
        let limited = Limited::new(manager, stripe.devid, end);
        self.progress.total_bytes +=
            manager.space().group_at(chunk.logical()).map_or(0, |group| group.used());
        let leaves =
            |other: &ChunkStripe| (other.devid, other.physical) == (stripe.devid, stripe.physical);
        let mut advance = |bytes: u64| self.advance(bytes);
        let moved = manager.move_chunk(chunk.logical(), chunk.profile(), leaves, &mut advance);
        drop(limited);
        match moved {
            Ok(moved) => {
                self.moved.add(&moved);
                Ok(true)
            }
            Err(Error::NoPlace { .. } | Error::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
