//! Filling the holes of a device with what lies at its end.
//!
//! # Invariants
//! - The end of the last group moves to places before the group, where new groups are made for it,
//!   or stays.
//! - If it stays, since no hole is long enough, the whole group moves away, and comes back to a new
//!   group in the holes and the place that it left, as one.
//! - It ends: each round but the last makes the device shorter.

use std::ops::Range;
use std::sync::Arc;

use larder_volume::Chunk;

use super::DeviceWork;
use crate::error::{Error, Result};
use crate::space::{Group, LowestFirst, SpaceKind};

/// Holes stay if together they are at most this part of what lies before their end...
const LEAST_SHARE: u64 = 64;
/// ... or at most so many bytes.
const LEAST_BYTES: u64 = 256 << 10;
/// Room for rounding stripes, and for places of superblocks.
const ROUNDING_BYTES: u64 = 512 << 10;
/// So much of a group moves at a time.
const PART_BYTES: u64 = 32 << 20;

impl DeviceWork<'_> {
    /// Fills the holes on a device as long as that makes it shorter.
    pub(super) fn fold(&mut self, devid: u64, order: &LowestFirst<'_>) -> Result<()> {
        if !self.manager.bookkeeping.removes_groups() {
            return Ok(());
        }
        let mut end = u64::MAX;
        while self.end_and_holes(devid).0 < end {
            let holes_bytes;
            (end, holes_bytes) = self.end_and_holes(devid);
            let Some((group, physical)) = self.last_group(devid) else { return Ok(()) };
            if holes_bytes <= LEAST_BYTES.max(end / LEAST_SHARE) {
                return Ok(());
            }
            order.set_data_end(Some((devid, physical)));
            self.move_end(&group, holes_bytes)?;
            self.cut(devid)?;
            order.set_data_end(None);
            if self.end_and_holes(devid).0 >= end {
                self.rebuild_last(devid, order)?;
            }
        }
        Ok(())
    }

    /// Makes a new group of the last one, which lies where nothing but it and holes was.
    fn rebuild_last(&mut self, devid: u64, order: &LowestFirst<'_>) -> Result<()> {
        let (end, holes_bytes) = self.end_and_holes(devid);
        let away = match self.last_group(devid) {
            Some((group, _)) => self.empty(&group)?,
            None => false,
        };
        let mut is_back = false;
        // Stripes lie side by side if there is just enough room.
        for end in [end - holes_bytes + ROUNDING_BYTES, end] {
            if let Some((group, _)) = self.last_group(devid).filter(|_| away && !is_back) {
                self.cut(devid)?;
                order.set_data_end(Some((devid, end)));
                is_back = self.empty(&group)?;
                order.set_data_end(None);
            }
        }
        self.cut(devid)?;
        if is_back { Ok(()) } else { self.pack(devid) }
    }

    /// Where the last stripe on a device ends, and how much before has none.
    fn end_and_holes(&self, devid: u64) -> (u64, u64) {
        self.manager.space().with_devices(|devices| {
            let Some(device) = devices.get(devid) else { return (0, 0) };
            let end = device.end_of_chunks();
            let after = device.total_bytes.saturating_sub(end);
            (end, device.unallocated_bytes().saturating_sub(after))
        })
    }

    /// The group with the last stripe on a device, unless it is for the chunk tree, and where the
    /// stripe is.
    fn last_group(&self, devid: u64) -> Option<(Arc<Group>, u64)> {
        let places = self.groups_on(devid).into_iter().filter_map(|group| {
            let chunk = group.chunk();
            let on_it = chunk.stripes().iter().filter(|stripe| stripe.devid == devid);
            let last = on_it.map(|stripe| stripe.physical.0).max()?;
            Some((group, last))
        });
        let last = places.max_by_key(|(_, physical)| *physical)?;
        Some(last).filter(|(group, _)| !group.holds(SpaceKind::System))
    }

    /// Moves up to so many bytes on a device from the end of a group, as long as there is room.
    fn move_end(&mut self, group: &Arc<Group>, most_bytes: u64) -> Result<()> {
        let manager = self.manager;
        let chunk = group.chunk();
        let most_bytes = most_bytes / per_logical_byte(&chunk);
        let Range { start, mut end } = group.range();
        let least = end.saturating_sub(most_bytes).max(start);
        self.progress.total_bytes += end - least;
        let mut part_bytes = PART_BYTES;
        while end > least && part_bytes >= LEAST_BYTES {
            let part = end.saturating_sub(part_bytes).max(least)..end;
            let from = part.start;
            let mut advance = |bytes: u64| self.advance(bytes);
            match manager.move_part(group, part, &mut advance) {
                Ok(moved) => {
                    self.moved.add(&moved);
                    end = from;
                }
                Err(Error::NoSpace { .. } | Error::NoPlace { .. }) => part_bytes /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// How many bytes on devices a byte of a chunk takes, rounded down.
fn per_logical_byte(chunk: &Chunk) -> u64 {
    chunk.bytes_per_stripe() * chunk.stripes().len() as u64 / chunk.len_bytes()
}
