//! Where the data of a block group lies, from its checksums.
//!
//! A sector and its checksum belong together. A few sectors of each stripe say which of the device
//! extents it is ([`in_order`]). If there are no extents, the devices are read once, and each
//! sector whose checksum the block group has votes for the address at which its stripe would begin
//! ([`find`]): exact if all checksums of the stripe agree, otherwise the one clear best. Where no
//! block group is known either, each cell of 64 KiB is found by itself ([`find_cells`]), since
//! every profile keeps one together.
//!
//! # Invariants
//! - A checksum that the block group has more than once says nothing of an address, and has no
//!   vote.
//! - A stripe is placed only where its votes are more than twice those of any other address.
//! - Memory: [`MOST_SAMPLES`] checksums of each stripe, [`CELL_SAMPLES`] of each of [`MOST_CELLS`]
//!   cells, and a number for each address that has a vote.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::item::DevItem;
use larder_format::{BlockGroupFlags, Logical, Physical, Uuid};
use larder_volume::{Chunk, ChunkMap, ChunkStripe};

use crate::blocks::Blocks;
use crate::checksums::Checksums;
use crate::evidence::Member;

/// Checksums of each stripe that are compared.
const MOST_SAMPLES: usize = 64;
/// Checksums of each cell that are compared.
const CELL_SAMPLES: usize = 4;
/// Cells that are found by themselves: those of 64 GiB.
const MOST_CELLS: usize = 1 << 20;
/// Bytes of a device that are read at a time.
const WINDOW_BYTES: usize = 2 << 20;

/// A checksum, and where in a stripe its sector lies.
pub(crate) struct Sample {
    pub(crate) stripe: usize,
    pub(crate) offset: u64,
    pub(crate) checksum: Vec<u8>,
}

/// Samples of each stripe of a chunk, without checksums that it has more than once.
pub(crate) fn samples(checksums: &Checksums<'_>, chunk: &Chunk) -> Vec<Sample> {
    let mut seen: HashMap<Vec<u8>, Option<u64>> = HashMap::new();
    let mut count = 0_usize;
    let most = MOST_SAMPLES * chunk.stripes().len() * 16;
    checksums.for_each(&(chunk.logical().0..chunk.end().0), |at, checksum| {
        if count < most {
            count += 1;
            seen.entry(checksum.to_vec()).and_modify(|it| *it = None).or_insert(Some(at));
        }
    });
    let mut unique: Vec<_> = seen.into_iter().filter_map(|(sum, at)| Some((at?, sum))).collect();
    unique.sort_unstable();
    let mut left = vec![MOST_SAMPLES; chunk.stripes().len()];
    let mut samples = Vec::new();
    for (at, checksum) in unique {
        let segment = chunk.segment(Logical(at), 1);
        for address in chunk.addresses(&segment) {
            if left[address.stripe] > 0 {
                left[address.stripe] -= 1;
                let offset = address.physical.0 - chunk.stripes()[address.stripe].physical.0;
                samples.push(Sample { stripe: address.stripe, offset, checksum: checksum.clone() });
            }
        }
    }
    samples
}

/// The same chunk with its stripes in the order that the data shows; stripes of which it shows
/// nothing stay in the order of devices.
pub(crate) fn in_order(blocks: &Blocks, checksums: &Checksums<'_>, chunk: Chunk) -> Chunk {
    let stripes = chunk.stripes();
    if stripes.len() < 2 || !chunk.is_striped() {
        return chunk;
    }
    let mut scores = vec![vec![0_u32; stripes.len()]; stripes.len()];
    let mut sector = vec![0; blocks.evidence.sectorsize()];
    for sample in samples(checksums, &chunk) {
        for (extent, stripe) in stripes.iter().enumerate() {
            let members = &blocks.evidence.members;
            let Some(member) = members.iter().find(|it| it.devid == stripe.devid) else { continue };
            let is_read = member.device.read_at(&mut sector, stripe.physical.0 + sample.offset);
            let is_it = || checksums.kind().compute(&sector).as_bytes() == sample.checksum;
            scores[sample.stripe][extent] += u32::from(is_read.is_ok() && is_it());
        }
    }
    reordered(chunk, &scores)
}

/// The same chunk with its stripes in the order of the highest scores, of each place and stripe.
pub(crate) fn reordered(chunk: Chunk, scores: &[Vec<u32>]) -> Chunk {
    let stripes = chunk.stripes();
    let pairs = (0..stripes.len()).flat_map(|a| (0..stripes.len()).map(move |b| (a, b)));
    let mut pairs: Vec<(usize, usize)> = pairs.collect();
    pairs.sort_by_key(|(place, extent)| Reverse(scores[*place][*extent]));
    let mut order: Vec<Option<ChunkStripe>> = vec![None; stripes.len()];
    let mut used = vec![false; stripes.len()];
    for (place, extent) in pairs {
        if order[place].is_none() && !used[extent] {
            order[place] = Some(stripes[extent]);
            used[extent] = true;
        }
    }
    let order: Vec<ChunkStripe> = order.into_iter().flatten().collect();
    Chunk::new(chunk.logical(), chunk.len_bytes(), chunk.flags(), order).unwrap_or(chunk)
}

/// A block group without extents: start, length in bytes, flags.
pub(crate) type Group = (u64, u64, BlockGroupFlags);

/// Finds the chunks of block groups of which no extent is known, by reading all devices.
pub(crate) fn find(
    blocks: &Blocks,
    checksums: &Checksums<'_>,
    devices: &BTreeMap<u64, DevItem>,
    groups: &[Group],
) -> Vec<Chunk> {
    let shapes: Vec<Chunk> = groups.iter().filter_map(|group| shape(group, devices)).collect();
    if shapes.is_empty() {
        return Vec::new();
    }
    let mut wanted: Wanted = HashMap::new();
    for (index, shape) in shapes.iter().enumerate() {
        for sample in samples(checksums, shape) {
            let places = wanted.entry(sample.checksum).or_default();
            places.push((index, sample.stripe, sample.offset));
        }
    }
    let votes = votes(blocks, checksums, &wanted);
    let members = &blocks.evidence.members;
    let place = |(index, shape)| place(shape, index, &votes, members, devices);
    shapes.iter().enumerate().filter_map(place).collect()
}

/// A chunk of the form of a block group, on as many devices as there can be, all at address 0.
pub(crate) fn shape(group: &Group, devices: &BTreeMap<u64, DevItem>) -> Option<Chunk> {
    let (start, len_bytes, flags) = *group;
    let of = |count: usize| {
        let stripe = ChunkStripe { devid: 0, dev_uuid: Uuid::nil(), physical: Physical(0) };
        Chunk::new(Logical(start), len_bytes, flags, vec![stripe; count]).ok()
    };
    (1..=devices.len().max(2)).rev().find_map(of)
}

/// Block group, stripe and offset of sectors, by checksum.
type Wanted = HashMap<Vec<u8>, Vec<(usize, usize, u64)>>;

/// Votes by block group, stripe, device and address of the stripe.
pub(crate) type Votes = HashMap<(usize, usize), HashMap<(u64, u64), u32>>;

fn votes(blocks: &Blocks, checksums: &Checksums<'_>, wanted: &Wanted) -> Votes {
    let sectorsize = blocks.evidence.sectorsize();
    let mut votes = Votes::new();
    let mut window = vec![0; WINDOW_BYTES];
    for member in &blocks.evidence.members {
        let len_bytes = member.device.len_bytes();
        let mut start = 0;
        while start < len_bytes {
            let len = (len_bytes - start).min(WINDOW_BYTES as u64) as usize;
            let bytes = &mut window[..len];
            let next = start + len as u64;
            member.device.readahead(next, (len_bytes - next).min(WINDOW_BYTES as u64));
            if member.device.read_at(bytes, start).is_ok() {
                let sectors: Vec<(u64, &[u8])> =
                    (start..).step_by(sectorsize).zip(bytes.chunks_exact(sectorsize)).collect();
                let compute = |(at, sector): &(u64, &[u8])| {
                    let checksum = checksums.kind().compute(sector);
                    wanted.get(checksum.as_bytes()).map(|places| (*at, places))
                };
                let hits = larder_parallel::map_in_stretches(&sectors, compute);
                for (at, places) in hits.into_iter().flatten() {
                    for (group, stripe, offset) in places {
                        if let Some(base) = at.checked_sub(*offset) {
                            let votes = votes.entry((*group, *stripe)).or_default();
                            *votes.entry((member.devid, base)).or_default() += 1;
                        }
                    }
                }
            }
            start = next;
        }
    }
    votes
}

/// The chunk of this form where the votes say.
pub(crate) fn place(
    shape: &Chunk,
    index: usize,
    votes: &Votes,
    members: &[Member],
    devices: &BTreeMap<u64, DevItem>,
) -> Option<Chunk> {
    let copies = shape.shape().copies;
    let mut stripes: Vec<ChunkStripe> = Vec::new();
    for stripe in 0..shape.stripes().len() {
        let is_taken = |(devid, physical): (u64, u64)| {
            stripes.iter().any(|it| (it.devid, it.physical.0) == (devid, physical))
        };
        let own = votes.get(&(index, stripe)).into_iter().flatten();
        let mut own: Vec<_> = own.filter(|(place, _)| !is_taken(**place)).collect();
        own.sort_unstable_by_key(|(place, count)| (Reverse(**count), **place));
        let first_copy = stripe - stripe % copies;
        let Some((best, count)) = own.first() else {
            // Any copy will do for those that are lost.
            stripes
                .push(stripes.get(first_copy).copied().or_else(|| lost_stripe(members, devices))?);
            continue;
        };
        // Other copies of the stripe have as many votes as it has.
        let rival = own.get(first_copy + copies - stripe).map_or(0, |(_, count)| **count);
        if **count <= 2 * rival {
            return None;
        }
        stripes.push(stripe_at(**best, devices));
    }
    Chunk::new(shape.logical(), shape.len_bytes(), shape.flags(), stripes).ok()
}

/// Finds chunks of single cells that have data with checksums and lie in none of `chunks`, by
/// reading all devices: neighbours that stay neighbours are one chunk.
pub(crate) fn find_cells(
    blocks: &Blocks,
    checksums: &Checksums<'_>,
    devices: &BTreeMap<u64, DevItem>,
    chunks: &ChunkMap,
) -> Vec<Chunk> {
    let mut seen: HashMap<Vec<u8>, Option<u64>> = HashMap::new();
    let mut samples: BTreeMap<u64, usize> = BTreeMap::new();
    checksums.for_each(&(0..u64::MAX), |at, checksum| {
        let cell = at - at % STRIPE_LEN_BYTES;
        let is_known = samples.contains_key(&cell);
        if chunks.get(Logical(at)).is_some() || (samples.len() >= MOST_CELLS && !is_known) {
            return;
        }
        let count = samples.entry(cell).or_default();
        if *count < CELL_SAMPLES {
            *count += 1;
            seen.entry(checksum.to_vec()).and_modify(|it| *it = None).or_insert(Some(at));
        }
    });
    if samples.is_empty() {
        return Vec::new();
    }
    let cells: Vec<u64> = samples.into_keys().collect();
    let mut wanted: Wanted = HashMap::new();
    let mut counts = vec![0; cells.len()];
    for (checksum, at) in seen {
        let Some(at) = at else { continue };
        let offset = at % STRIPE_LEN_BYTES;
        let index = cells.partition_point(|cell| *cell < at - offset);
        counts[index] += 1;
        wanted.insert(checksum, vec![(index, 0, offset)]);
    }
    let votes = votes(blocks, checksums, &wanted);
    let mut runs: Vec<(u64, u64, (u64, u64))> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let mut own: Vec<_> = votes.get(&(index, 0)).into_iter().flatten().collect();
        own.sort_unstable_by_key(|(place, count)| (Reverse(**count), **place));
        let Some((place, count)) = own.first() else { continue };
        let rival = own.get(1).map_or(0, |(_, count)| **count);
        if **count < counts[index] && **count <= 2 * rival {
            continue;
        }
        match runs.last_mut() {
            Some((start, len_bytes, (devid, physical)))
                if *start + *len_bytes == *cell
                    && (*devid, *physical + *len_bytes) == (place.0, place.1) =>
            {
                *len_bytes += STRIPE_LEN_BYTES;
            }
            _ => runs.push((*cell, STRIPE_LEN_BYTES, **place)),
        }
    }
    let chunk = |(start, len_bytes, place)| {
        let stripes = [stripe_at(place, devices)];
        Chunk::new(Logical(start), len_bytes, BlockGroupFlags::DATA, stripes).ok()
    };
    runs.into_iter().filter_map(chunk).collect()
}

/// A stripe on a device that is missing.
fn lost_stripe(members: &[Member], devices: &BTreeMap<u64, DevItem>) -> Option<ChunkStripe> {
    let is_here = |devid: &u64| members.iter().any(|member| member.devid == *devid);
    let devid = devices.keys().find(|devid| !is_here(devid))?;
    Some(stripe_at((*devid, 0), devices))
}

fn stripe_at((devid, physical): (u64, u64), devices: &BTreeMap<u64, DevItem>) -> ChunkStripe {
    let dev_uuid = devices.get(&devid).map_or(Uuid::nil(), DevItem::uuid);
    ChunkStripe { devid, dev_uuid, physical: Physical(physical) }
}
