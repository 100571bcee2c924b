//! The space of devices that is allocated to chunks.
//!
//! # Invariants
//! - No two stripes overlap; none lies in the first MiB or past the device's end.
//! - The space of a removed chunk stays taken until the commit that removed it is durable.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_format::Uuid;
use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::superblock::{DEVICE_RESERVED_BYTES, OFFSETS};

use crate::chunk::{Chunk, ChunkStripe};
use crate::geometry::Geometry;

/// A device for chunks.
#[derive(Clone, Debug)]
pub struct DeviceSpace {
    /// Id of the device.
    pub devid: u64,
    /// UUID of the device.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Whether new chunks may be allocated there.
    pub is_usable: bool,
    /// Taken ranges, by their start.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    end: u64,
    /// Its chunk was removed, but a power cut could bring it back.
    is_retired: bool,
}

impl DeviceSpace {
    /// A device without chunks.
    pub fn new(devid: u64, uuid: Uuid, total_bytes: u64) -> Self {
        Self { devid, uuid, total_bytes, is_usable: true, taken: BTreeMap::new() }
    }

    /// Bytes without a chunk, in any number of pieces.
    pub fn unallocated_bytes(&self) -> u64 {
        self.holes().map(|hole| hole.end - hole.start).sum()
    }

    /// Bytes of chunks, without those of removed chunks.
    pub fn bytes_used(&self) -> u64 {
        let live = self.taken.iter().filter(|(_, taken)| !taken.is_retired);
        live.map(|(start, taken)| taken.end - start).sum()
    }

    /// The first hole of `len_bytes`, or otherwise the largest.
    pub fn hole(&self, len_bytes: u64) -> Option<Range<u64>> {
        let size = |hole: &Range<u64>| hole.end - hole.start;
        let first = self.holes().find(|hole| size(hole) >= len_bytes);
        first.or_else(|| self.holes().max_by_key(|hole| (size(hole), u64::MAX - hole.start)))
    }

    /// The first place with room for a stripe of `len_bytes` that has content already: no superblock
    /// copy lies there.
    pub(super) fn place_for_content(&self, len_bytes: u64) -> Option<u64> {
        self.holes().flat_map(without_superblocks).find_map(|hole| {
            let start = hole.start.next_multiple_of(STRIPE_LEN_BYTES);
            let fits = start.checked_add(len_bytes).is_some_and(|end| end <= hole.end);
            fits.then_some(start)
        })
    }

    /// The end of the last stripe.
    pub fn end_of_chunks(&self) -> u64 {
        self.taken.values().next_back().map_or(DEVICE_RESERVED_BYTES, |taken| taken.end)
    }

    fn holes(&self) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let ends = self.taken.values().map(|taken| taken.end);
        let starts = self.taken.keys().copied();
        let from = std::iter::once(DEVICE_RESERVED_BYTES).chain(ends);
        let to = starts.chain([self.total_bytes]);
        let to = to.map(|to| to.min(self.total_bytes));
        from.zip(to).filter(|(from, to)| from < to).map(|(from, to)| from..to)
    }

    pub(super) fn take(&mut self, range: Range<u64>) {
        let before = self.taken.range(..range.end).next_back();
        debug_assert!(before.is_none_or(|(_, taken)| taken.end <= range.start), "{range:?}");
        self.taken.insert(range.start, Taken { end: range.end, is_retired: false });
    }
}

/// The parts of a hole around the cells that superblock copies share.
fn without_superblocks(hole: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = OFFSETS.map(|copy| copy.0 + STRIPE_LEN_BYTES);
    let from = std::iter::once(hole.start).chain(starts.map(|start| start.max(hole.start)));
    let to = OFFSETS.map(|copy| copy.0.min(hole.end)).into_iter().chain([hole.end]);
    from.zip(to).filter(|(from, to)| from < to).map(|(from, to)| from..to)
}

/// The devices of a file system.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// In order of their ids.
    devices: Vec<DeviceSpace>,
}

impl Devices {
    /// The devices of a volume with the space of its chunks taken.
    pub fn of(geometry: &Geometry) -> Self {
        let mut devices = Self::default();
        for device in geometry.devices().iter() {
            let total_bytes = device.dev_item().total_bytes.get();
            let mut space = DeviceSpace::new(device.devid(), device.uuid(), total_bytes);
            space.is_usable = device.takes_chunks();
            devices.devices.push(space);
        }
        geometry.chunks().iter().for_each(|chunk| devices.take(chunk));
        devices
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &DeviceSpace> {
        self.devices.iter()
    }

    /// Devices for new chunks.
    pub fn usable(&self) -> impl Iterator<Item = &DeviceSpace> {
        self.devices.iter().filter(|device| device.is_usable)
    }

    /// The device of this id.
    pub fn get(&self, devid: u64) -> Option<&DeviceSpace> {
        self.devices.iter().find(|device| device.devid == devid)
    }

    /// Takes the space of a chunk: no other gets any of it.
    pub fn take(&mut self, chunk: &Chunk) {
        for ChunkStripe { devid, physical, .. } in chunk.stripes() {
            if let Some(device) = self.get_mut(*devid) {
                device.take(physical.0..physical.0 + chunk.bytes_per_stripe());
            }
        }
    }

    /// The space of a removed chunk counts as unused, but cannot be taken yet.
    pub fn retire(&mut self, chunk: &Chunk) {
        for stripe in chunk.stripes() {
            let device = self.get_mut(stripe.devid);
            if let Some(taken) = device.and_then(|d| d.taken.get_mut(&stripe.physical.0)) {
                taken.is_retired = true;
            }
        }
    }

    /// Keeps the places that a chunk will move to, apart from those that it has. They do not count
    /// as used yet, and no other chunk gets them.
    pub fn keep_for_move(&mut self, from: &Chunk, to: &Chunk) {
        for (devid, range) in places_of_one(to, from) {
            if let Some(device) = self.get_mut(devid) {
                device.take(range.clone());
                device.taken.entry(range.start).and_modify(|taken| taken.is_retired = true);
            }
        }
    }

    /// A chunk has moved: its new places count as used, and the old ones do not. They are not free
    /// before [`end_move`](Self::end_move).
    pub fn moved(&mut self, from: &Chunk, to: &Chunk) {
        for (places, is_retired) in
            [(places_of_one(to, from), false), (places_of_one(from, to), true)]
        {
            for (devid, range) in places {
                let device = self.get_mut(devid);
                if let Some(taken) = device.and_then(|d| d.taken.get_mut(&range.start)) {
                    taken.is_retired = is_retired;
                }
            }
        }
    }

    /// Frees the places of `left` that `now` does not have.
    pub fn end_move(&mut self, left: &Chunk, now: &Chunk) {
        for (devid, range) in places_of_one(left, now) {
            if let Some(device) = self.get_mut(devid) {
                device.taken.remove(&range.start);
            }
        }
    }

    /// Adds a device without chunks.
    pub fn add(&mut self, device: DeviceSpace) {
        self.devices.push(device);
        self.devices.sort_by_key(|device| device.devid);
    }

    /// Removes a device.
    pub fn remove(&mut self, devid: u64) {
        self.devices.retain(|device| device.devid != devid);
    }

    /// Changes a device's size, or whether it is usable.
    pub fn change(&mut self, devid: u64, change: impl FnOnce(&mut DeviceSpace)) {
        if let Some(device) = self.get_mut(devid) {
            change(device);
        }
    }

    /// Cuts stripes to `stripe_bytes`. The rest counts as unused, and that at the end of a device
    /// can be taken again.
    pub fn cut(&mut self, chunk: &Chunk, stripe_bytes: u64) {
        for stripe in chunk.stripes() {
            let Some(device) = self.get_mut(stripe.devid) else { continue };
            let (start, end) = (stripe.physical.0, stripe.physical.0 + chunk.bytes_per_stripe());
            let is_last = device.end_of_chunks() == end;
            device.taken.insert(start, Taken { end: start + stripe_bytes, is_retired: false });
            if !is_last {
                device.taken.insert(start + stripe_bytes, Taken { end, is_retired: true });
            }
        }
    }

    /// Shortens the places of a chunk, which has its new length already: there is nothing in the
    /// rest.
    pub fn shorten(&mut self, chunk: &Chunk) {
        for stripe in chunk.stripes() {
            let end = stripe.physical.0 + chunk.bytes_per_stripe();
            let device = self.get_mut(stripe.devid);
            if let Some(taken) = device.and_then(|d| d.taken.get_mut(&stripe.physical.0)) {
                taken.end = end;
            }
        }
    }

    /// The lowest place on its device for a stripe of a chunk, if its own were free.
    pub fn lowest_place(&self, chunk: &Chunk, stripe: &ChunkStripe) -> Option<u64> {
        let mut device = self.get(stripe.devid)?.clone();
        device.taken.remove(&stripe.physical.0);
        device.place_for_content(chunk.bytes_per_stripe())
    }

    /// Cuts every device after its last chunk.
    pub fn shrink(&mut self) {
        for device in &mut self.devices {
            device.total_bytes = device.end_of_chunks();
        }
    }

    /// Frees the space of a chunk: no power cut can bring it back any more.
    pub fn give(&mut self, chunk: &Chunk) {
        for stripe in chunk.stripes() {
            if let Some(device) = self.get_mut(stripe.devid) {
                device.taken.remove(&stripe.physical.0);
            }
        }
    }

    fn get_mut(&mut self, devid: u64) -> Option<&mut DeviceSpace> {
        self.devices.iter_mut().find(|device| device.devid == devid)
    }
}

/// The places on devices that `one` has and `other` has not.
fn places_of_one<'c>(
    one: &'c Chunk,
    other: &'c Chunk,
) -> impl Iterator<Item = (u64, Range<u64>)> + 'c {
    let places = |chunk: &'c Chunk| {
        chunk.stripes().iter().map(|stripe| {
            let start = stripe.physical.0;
            (stripe.devid, start..start + chunk.bytes_per_stripe())
        })
    };
    places(one).filter(move |place| !places(other).any(|has| has == *place))
}

impl FromIterator<DeviceSpace> for Devices {
    fn from_iter<T: IntoIterator<Item = DeviceSpace>>(devices: T) -> Self {
        Self { devices: devices.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that becomes smaller has nothing to give after its new end.
    #[test]
    fn holes_end_where_the_device_does() {
        const MIB: u64 = 1 << 20;
        let mut device = DeviceSpace::new(1, Uuid::nil(), 100 * MIB);
        device.take(10 * MIB..20 * MIB);
        device.take(40 * MIB..50 * MIB);
        assert_eq!(device.unallocated_bytes(), 79 * MIB);
        device.total_bytes = 30 * MIB;
        assert_eq!(device.unallocated_bytes(), 19 * MIB);
        assert_eq!(device.place_for_content(15 * MIB), None);
        device.total_bytes = 15 * MIB;
        assert_eq!(device.unallocated_bytes(), 9 * MIB);
    }
}
