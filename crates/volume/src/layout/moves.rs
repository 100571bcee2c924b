//! Where a chunk that has content can move to.
//!
//! # Invariants
//! - A chunk keeps its addresses and its length. Its stripes stay where they are, unless they are to
//!   leave or the profile has no use for them.
//! - No superblock copy lies in a new stripe: any address of the chunk may have content.

use std::cmp::Reverse;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::{BlockGroupFlags, Physical, Profile};

use super::devices::{DeviceSpace, Devices};
use crate::chunk::{Chunk, ChunkStripe};

/// The chunk with stripes of `profile`, none of which is one that `leaves`. `None` if the devices
/// have no room for it, or too few of them have.
pub fn moved(
    chunk: &Chunk,
    profile: Profile,
    devices: &Devices,
    leaves: impl Fn(&ChunkStripe) -> bool,
) -> Option<Chunk> {
    let kept: Vec<ChunkStripe> =
        chunk.stripes().iter().filter(|stripe| !leaves(stripe)).copied().collect();
    let is_whole = |profile: Profile| {
        let shape = profile.shape();
        !shape.is_striped && shape.parities == 0
    };
    let stripes = if profile == chunk.profile() && !chunk.has_parity() {
        replaced(chunk, devices, &leaves)
    } else if is_whole(profile) && is_whole(chunk.profile()) {
        completed(kept, profile, chunk.len_bytes(), devices)
    } else {
        (1..=most_devices(profile, devices))
            .rev()
            .find_map(|count| fresh(chunk, profile, count, devices))
    }?;
    let types = chunk.flags() & BlockGroupFlags::TYPES;
    Chunk::new(chunk.logical(), chunk.len_bytes(), types | profile.flags(), stripes).ok()
}

/// The stripes with others in the place of those that leave.
fn replaced(
    chunk: &Chunk,
    devices: &Devices,
    leaves: &impl Fn(&ChunkStripe) -> bool,
) -> Option<Vec<ChunkStripe>> {
    let mut devices = devices.clone();
    let mut stripes: Vec<ChunkStripe> = chunk.stripes().to_vec();
    let per_device = chunk.shape().stripes_per_device;
    let is_leaving: Vec<bool> = stripes.iter().map(leaves).collect();
    for at in 0..stripes.len() {
        if !is_leaving[at] {
            continue;
        }
        let staying = |index: usize| index < at || !is_leaving[index];
        let used = |devid: u64| {
            let others = stripes.iter().enumerate().filter(|(index, _)| staying(*index));
            others.filter(|(_, stripe)| stripe.devid == devid).count()
        };
        // Two stripes of DUP lie on one device.
        let is_bound = per_device > 1 && (0..stripes.len()).any(staying);
        let may_have = |device: &&DeviceSpace| {
            let used = used(device.devid);
            used < per_device && (!is_bound || used > 0)
        };
        stripes[at] = place(&mut devices, chunk.bytes_per_stripe(), may_have)?;
    }
    Some(stripes)
}

/// Stripes that each have the whole chunk: those that stay, and more.
fn completed(
    mut stripes: Vec<ChunkStripe>,
    profile: Profile,
    len_bytes: u64,
    devices: &Devices,
) -> Option<Vec<ChunkStripe>> {
    let mut devices = devices.clone();
    let shape = profile.shape();
    if shape.stripes_per_device == 1 {
        stripes.sort_by_key(|stripe| stripe.devid);
        stripes.dedup_by_key(|stripe| stripe.devid);
    } else if let Some(first) = stripes.first().copied() {
        stripes.retain(|stripe| stripe.devid == first.devid);
    }
    stripes.truncate(shape.copies);
    while stripes.len() < shape.copies {
        let used = |devid: u64| stripes.iter().filter(|stripe| stripe.devid == devid).count();
        let is_bound = shape.stripes_per_device > 1 && !stripes.is_empty();
        let may_have = |device: &&DeviceSpace| {
            let used = used(device.devid);
            used < shape.stripes_per_device && (!is_bound || used > 0)
        };
        stripes.push(place(&mut devices, len_bytes, may_have)?);
    }
    Some(stripes)
}

/// Stripes in new places on this many devices.
fn fresh(
    chunk: &Chunk,
    profile: Profile,
    count: usize,
    devices: &Devices,
) -> Option<Vec<ChunkStripe>> {
    let shape = profile.shape();
    let stripes = count * shape.stripes_per_device;
    if shape.devices_of(count) != count || !shape.allows(stripes) {
        return None;
    }
    let data_stripes = shape.data_stripes(stripes) as u64;
    if !chunk.len_bytes().is_multiple_of(data_stripes * STRIPE_LEN_BYTES) {
        return None;
    }
    let stripe_bytes = chunk.len_bytes() / data_stripes;
    let mut devices = devices.clone();
    let mut placed: Vec<ChunkStripe> = Vec::new();
    for _ in 0..count {
        let is_other =
            |device: &&DeviceSpace| placed.iter().all(|stripe| stripe.devid != device.devid);
        let first = place(&mut devices, stripe_bytes, is_other)?;
        placed.push(first);
        for _ in 1..shape.stripes_per_device {
            let is_same = |device: &&DeviceSpace| device.devid == first.devid;
            placed.push(place(&mut devices, stripe_bytes, is_same)?);
        }
    }
    Some(placed)
}

/// How many devices a chunk of the profile may have.
fn most_devices(profile: Profile, devices: &Devices) -> usize {
    profile.shape().devices_of(devices.usable().count())
}

/// Takes a place for a stripe on the device with the most unallocated space of those that may have
/// it.
fn place(
    devices: &mut Devices,
    len_bytes: u64,
    may_have: impl Fn(&&DeviceSpace) -> bool,
) -> Option<ChunkStripe> {
    let places = devices.usable().filter(&may_have).filter_map(|device| {
        let start = device.place_for_content(len_bytes)?;
        let order = (Reverse(device.unallocated_bytes()), device.devid);
        Some((
            order,
            ChunkStripe { devid: device.devid, dev_uuid: device.uuid, physical: Physical(start) },
        ))
    });
    let (_, stripe) = places.min_by_key(|(order, _)| *order)?;
    let start = stripe.physical.0;
    devices.change(stripe.devid, |device| device.take(start..start + len_bytes));
    Some(stripe)
}

#[cfg(test)]
mod tests {
    use larder_format::superblock::OFFSETS;
    use larder_format::{Logical, Uuid};
    use proptest::prelude::*;

    use super::*;
    use crate::layout::Limits;
    use larder_format::SpaceKind;

    const MIB: u64 = 1 << 20;

    proptest! {
        /// Chunks move from any profile to any other and away from devices: what is returned fits,
        /// overlaps nothing, and has no stripe that was to leave.
        #[test]
        fn chunks_move(
            lens in prop::collection::vec(64_u64..3000, 1..6),
            from in prop::sample::select(Profile::ALL.to_vec()),
            to in prop::sample::select(Profile::ALL.to_vec()),
            leaving in 0_u64..6,
            others in 0_usize..6,
        ) {
            let device = |(devid, mib): (u64, &u64)| {
                DeviceSpace::new(devid, Uuid::from_u128(devid.into()), mib * MIB)
            };
            let mut devices: Devices = (1..).zip(&lens).map(device).collect();
            let total = lens.iter().sum::<u64>() * MIB;
            let mut limits = Limits::new(SpaceKind::Data, total, 16384);
            limits.stripe_bytes = limits.stripe_bytes.min(256 * MIB);
            let mut chunks = Vec::new();
            for _ in 0..=others {
                let Some(plan) = limits.plan(from, &devices) else { break };
                let logical = chunks.last().map_or(Logical(MIB), Chunk::end);
                let chunk = plan.chunk(logical, BlockGroupFlags::DATA).unwrap();
                devices.take(&chunk);
                chunks.push(chunk);
            }
            let Some(chunk) = chunks.first() else { return Ok(()) };
            let before = devices.clone();
            devices.change(leaving, |device| device.is_usable = false);
            let Some(new) = moved(chunk, to, &devices, |stripe| stripe.devid == leaving) else {
                return Ok(());
            };
            prop_assert_eq!((new.logical(), new.len_bytes()), (chunk.logical(), chunk.len_bytes()));
            prop_assert_eq!(new.profile(), to);
            for stripe in new.stripes() {
                prop_assert!(stripe.devid != leaving);
                let range = stripe.physical.0..stripe.physical.0 + new.bytes_per_stripe();
                prop_assert!(range.end <= devices.get(stripe.devid).unwrap().total_bytes);
                let is_old = chunk.stripes().contains(stripe);
                let meets = OFFSETS.iter().any(|copy| {
                    copy.0 < range.end && range.start < copy.0 + STRIPE_LEN_BYTES
                });
                prop_assert!(is_old || !meets);
            }
            let mut on: Vec<u64> = new.stripes().iter().map(|stripe| stripe.devid).collect();
            on.sort_unstable();
            on.dedup();
            prop_assert_eq!(on.len() * to.shape().stripes_per_device, new.stripes().len());
            // Nothing overlaps, and what it left is free again.
            devices.keep_for_move(chunk, &new);
            devices.moved(chunk, &new);
            devices.end_move(chunk, &new);
            let used = |devices: &Devices| devices.iter().map(DeviceSpace::bytes_used).sum::<u64>();
            let bytes = |chunk: &Chunk| chunk.bytes_per_stripe() * chunk.stripes().len() as u64;
            prop_assert_eq!(used(&devices) + bytes(chunk), used(&before) + bytes(&new));
        }
    }
}
