//! One flipped bit of data, of its checksum, or of the name of an extended attribute, whose hash is
//! in its key.
//!
//! # Invariants
//! - Data changes only by the one bit that makes it match its checksum. CRC-32C, the weakest of the
//!   checksums, tells every such bit of a sector from every other, and from one of its own.
//! - Other damage than one bit looks like that once in 100,000 sectors at most.

use std::collections::BTreeSet;

use larder_format::item::{DirEntries, DirItemHeader};
use larder_format::{Key, Logical, name_hash};
use larder_volume::Volume;

use super::block::{Blocks, flipped_bit};
use super::commit::State;
use super::copies::each_checksum;
use super::error::RepairError;

/// Sectors that are looked at: half a minute of work.
const MOST_SECTORS: usize = 1000;

/// What was found out about sectors that match no checksum.
#[derive(Default)]
pub(super) struct Turned {
    /// Sectors whose data was written again.
    pub(super) data: BTreeSet<u64>,
    /// Sectors whose checksum is wrong.
    pub(super) checksums: BTreeSet<u64>,
}

/// Turns back the one bit of sectors of data that makes them match their checksums.
pub(super) fn turn_back(
    volume: &Volume,
    blocks: &Blocks<'_>,
    state: &State,
    sectors: &BTreeSet<u64>,
) -> Result<Turned, RepairError> {
    let mut turned = Turned::default();
    let mut outcome = Ok(());
    let sectors = sectors.iter().copied().take(MOST_SECTORS).collect();
    each_checksum(blocks, state, &sectors, &mut |sector, sum| {
        for copy in 0..volume.copies(Logical(sector)) {
            let mut data = vec![0; volume.sectorsize() as usize];
            if volume.read_copy(Logical(sector), copy, &mut data).is_err() {
                continue;
            }
            let found = volume.checksum_type().compute(&data);
            if differing_bits(found.as_bytes(), sum) == 1 {
                turned.checksums.insert(sector);
                return;
            }
            let is_right = |data: &[u8]| volume.checksum_type().compute(data).as_bytes() == sum;
            if flipped_bit(&mut data, is_right).is_some() {
                turned.data.insert(sector);
                if let Err(error) = volume.write(Logical(sector), &data) {
                    outcome = Err(error.into());
                }
                return;
            }
        }
    });
    outcome.map(|()| turned)
}

/// The key and the item of an extended attribute, with the one bit of either turned back that makes
/// the name have the hash in the key.
pub(super) fn attribute(key: Key, data: &[u8]) -> Option<(Key, Vec<u8>)> {
    let mut entries = DirEntries::new(data);
    let (Some(Ok(entry)), None) = (entries.next(), entries.next()) else { return None };
    let hash = name_hash::dir_name(entry.name);
    match (hash ^ key.offset).count_ones() {
        0 => return None,
        1 => return Some((Key { offset: hash, ..key }, data.to_vec())),
        _ => {}
    }
    let start = size_of::<DirItemHeader>();
    let mut name = entry.name.to_vec();
    flipped_bit(&mut name, |name| name_hash::dir_name(name) == key.offset)?;
    let mut turned = data.to_vec();
    turned[start..start + name.len()].copy_from_slice(&name);
    Some((key, turned))
}

fn differing_bits(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}
