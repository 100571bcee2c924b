//! Choosing devices for a chunk, and placing its stripes on them.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use larder_format::{BlockGroupFlags, Logical, Physical, Profile, Shape, Uuid};

use super::devices::{DeviceSpace, Devices};
use crate::chunk::{Chunk, ChunkError, ChunkStripe};

/// Devices that were chosen for a chunk, with a hole on each.
#[derive(Clone, Debug)]
pub struct Places {
    profile: Profile,
    /// One for each device.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    devid: u64,
    uuid: Uuid,
    /// Where the hole starts.
    start: u64,
    /// How much of it the stripes may take.
    len_bytes: u64,
    unallocated_bytes: u64,
}

impl Places {
    /// Chooses the devices with the most unallocated space, as many as the profile takes at most
    /// and as `max_stripes` allows. Each has a hole for stripes of the least of `stripe_bytes`; its
    /// space beyond the most does not count. `None` if there are too few.
    pub fn choose(
        profile: Profile,
        devices: &Devices,
        max_stripes: usize,
        stripe_bytes: RangeInclusive<u64>,
    ) -> Option<Self> {
        let shape = profile.shape();
        let per_device = |bytes: u64| bytes.saturating_mul(shape.stripes_per_device as u64);
        let (least_bytes, most_bytes) =
            (per_device(*stripe_bytes.start()), per_device(*stripe_bytes.end()));
        let place_in = |device: &DeviceSpace| {
            let hole = device.hole(most_bytes)?;
            let len_bytes = (hole.end - hole.start).min(most_bytes);
            (len_bytes >= least_bytes).then(|| Place {
                devid: device.devid,
                uuid: device.uuid,
                start: hole.start,
                len_bytes,
                unallocated_bytes: device.unallocated_bytes(),
            })
        };
        let mut places: Vec<Place> = devices.usable().filter_map(place_in).collect();
        places.sort_by_key(|place| {
            (Reverse((place.len_bytes, place.unallocated_bytes)), place.devid)
        });
        places.truncate(max_stripes / shape.stripes_per_device);
        places.truncate(shape.devices_of(places.len()));
        if places.is_empty() { None } else { Some(Self { profile, places }) }
    }

    fn shape(&self) -> Shape {
        self.profile.shape()
    }

    /// How many stripes the chunk has.
    pub fn stripes(&self) -> usize {
        self.places.len() * self.shape().stripes_per_device
    }

    /// How many of them have different data.
    pub fn data_stripes(&self) -> u64 {
        self.shape().data_stripes(self.stripes()) as u64
    }

    /// Bytes that each stripe may take at most.
    pub fn room_bytes(&self) -> u64 {
        let smallest_bytes = self.places.iter().map(|place| place.len_bytes).min();
        smallest_bytes.unwrap_or_default() / self.shape().stripes_per_device as u64
    }

    /// Places stripes of `stripe_bytes`, for which there must be room.
    pub fn plan(&self, stripe_bytes: u64) -> Plan {
        debug_assert!(stripe_bytes <= self.room_bytes(), "{stripe_bytes} bytes in {self:?}");
        let stripes = self.places.iter().flat_map(|place| {
            let physical = move |index| Physical(place.start + index * stripe_bytes);
            (0..self.shape().stripes_per_device as u64).map(move |index| ChunkStripe {
                devid: place.devid,
                dev_uuid: place.uuid,
                physical: physical(index),
            })
        });
        Plan {
            profile: self.profile,
            len_bytes: stripe_bytes * self.data_stripes(),
            stripes: stripes.collect(),
        }
    }
}

/// A chunk that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    profile: Profile,
    len_bytes: u64,
    stripes: Vec<ChunkStripe>,
}

impl Plan {
    /// Logical bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The chunk at an address, for content of these types.
    pub fn chunk(self, logical: Logical, types: BlockGroupFlags) -> Result<Chunk, ChunkError> {
        Chunk::new(logical, self.len_bytes, types | self.profile.flags(), self.stripes)
    }
}
