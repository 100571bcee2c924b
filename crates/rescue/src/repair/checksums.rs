//! The checksum tree: exactly the data that must have checksums has them.
//!
//! # Invariants
//! - A checksum that belongs to data is kept, whatever the data is now.
//! - A checksum is computed only for data that has none, unless the caller wants all anew.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{FileExtent, InodeFlags, InodeItem, csum_count};
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::objectid::{CSUM_TREE, EXTENT_CSUM, is_subvolume};
use larder_format::{ItemType, Key, Logical};
use larder_volume::Volume;
use zerocopy::FromBytes;

use super::block::Blocks;
use super::commit::{Draft, State, each_item};
use super::space::Ranges;

/// The most sectors of one read.
const SECTORS_AT_ONCE: u64 = 256;

/// Ranges of data (start, end).
#[derive(Default)]
struct Wanted {
    /// Must have checksums.
    needed: Vec<(u64, u64)>,
    /// Whole extents of files with checksums: may have some.
    allowed: Vec<(u64, u64)>,
    /// Of files without checksums.
    refused: Vec<(u64, u64)>,
    /// Files that get checksums: subvolume and inode.
    with: BTreeSet<(u64, u64)>,
}

/// Replaces the checksum tree in the draft. With `all`, computes every checksum anew.
pub(super) fn mend(
    volume: &Volume,
    blocks: &Blocks<'_>,
    state: &State,
    all: bool,
    draft: &mut Draft,
) {
    let mut wanted = Wanted { with: draft.with_checksums.clone(), ..Wanted::default() };
    for tree in state.trees() {
        if is_subvolume(tree.id) && tree.dropped.is_none() {
            wanted.add(blocks, tree.id, state);
        }
    }
    let sectorsize = u64::from(volume.sectorsize());
    let mut sums = if all { BTreeMap::new() } else { stored(volume, blocks, state) };
    // Those of data that is accepted as it is.
    for sector in &draft.fresh_checksums {
        sums.remove(sector);
    }
    let allowed = Ranges::new(wanted.allowed);
    let needed = Ranges::new(wanted.needed);
    let refused = Ranges::new(wanted.refused);
    let is_in = |ranges: &Ranges, sector: u64| ranges.gaps(sector, sector + sectorsize).is_empty();
    sums.retain(|sector, _| {
        is_in(&allowed, *sector) && (is_in(&needed, *sector) || !is_in(&refused, *sector))
    });
    for (start, end) in needed.all() {
        let mut missing: Vec<u64> = (start..end)
            .step_by(sectorsize as usize)
            .filter(|sector| !sums.contains_key(sector))
            .collect();
        missing.reverse();
        while let Some(first) = missing.pop() {
            let mut count = 1;
            while count < SECTORS_AT_ONCE && missing.last() == Some(&(first + count * sectorsize)) {
                missing.pop();
                count += 1;
            }
            compute(volume, first, count, &mut sums, draft);
        }
    }
    let fresh = draft.fresh_checksums.len();
    if fresh > 0 {
        let bytes = fresh as u64 * sectorsize;
        draft.notes.push(format!(
            "checksums of {bytes} bytes of data are computed from the data as it is now"
        ));
    }
    draft.whole.insert(CSUM_TREE, items(volume, &sums));
}

fn compute(
    volume: &Volume,
    first: u64,
    count: u64,
    sums: &mut BTreeMap<u64, Vec<u8>>,
    draft: &mut Draft,
) {
    let sectorsize = u64::from(volume.sectorsize());
    let mut data = vec![0; (count * sectorsize) as usize];
    if volume.read_data(Logical(first), &mut data, None).is_err() {
        draft.notes.push(format!("the data at {first} cannot be read, and gets no checksum"));
        return;
    }
    for (number, sector) in (0..).zip(data.chunks_exact(sectorsize as usize)) {
        let at = first + number * sectorsize;
        sums.insert(at, volume.checksum_type().compute(sector).as_bytes().to_vec());
        draft.fresh_checksums.insert(at);
    }
}

/// The checksums that are there, by sector.
fn stored(volume: &Volume, blocks: &Blocks<'_>, state: &State) -> BTreeMap<u64, Vec<u8>> {
    let (mut sums, mut others) = (BTreeMap::new(), Vec::new());
    let kind = volume.checksum_type();
    let sectorsize = u64::from(volume.sectorsize());
    let Some(root) = state.root(CSUM_TREE) else { return sums };
    each_item(blocks, CSUM_TREE, root, &mut |key, data| {
        let is_right = key.objectid == EXTENT_CSUM
            && key.item_type == ItemType::EXTENT_CSUM
            && key.offset.is_multiple_of(sectorsize)
            && csum_count(data.len(), kind).is_ok();
        for (number, sum) in (0..).zip(data.chunks_exact(kind.size()).filter(|_| is_right)) {
            if let Some(sector) = key.offset.checked_add(number * sectorsize) {
                let known = sums.entry(sector).or_insert_with(|| sum.to_vec());
                if known.as_slice() != sum {
                    others.push((sector, sum.to_vec()));
                }
            }
        }
    });
    // Of two checksums the one counts that the data has.
    let mut data = vec![0; sectorsize as usize];
    for (sector, sum) in others {
        if volume.read_data(Logical(sector), &mut data, Some(&sum)).is_ok() {
            sums.insert(sector, sum);
        }
    }
    sums
}

fn items(volume: &Volume, sums: &BTreeMap<u64, Vec<u8>>) -> Vec<(Key, Vec<u8>)> {
    let sectorsize = u64::from(volume.sectorsize());
    let size = volume.checksum_type().size();
    let room = volume.nodesize() as usize - HEADER_SIZE - 2 * ITEM_HEADER_SIZE - size;
    let most = room.min(4096) / size * size;
    let mut items: Vec<(Key, Vec<u8>)> = Vec::new();
    let mut next = None;
    for (sector, sum) in sums {
        match items.last_mut() {
            Some((_, data)) if next == Some(*sector) && data.len() < most => data.extend(sum),
            _ => items.push((Key::new(EXTENT_CSUM, ItemType::EXTENT_CSUM, *sector), sum.clone())),
        }
        next = Some(sector + sectorsize);
    }
    items
}

impl Wanted {
    fn add(&mut self, blocks: &Blocks<'_>, tree: u64, state: &State) {
        let Some(root) = state.root(tree) else { return };
        let mut without: BTreeSet<u64> = BTreeSet::new();
        each_item(blocks, tree, root, &mut |key, data| match key.item_type {
            ItemType::INODE_ITEM => {
                let flags = InodeItem::read_from_bytes(data).map(|item| item.flags());
                let is_without = flags.is_ok_and(|flags| flags.contains(InodeFlags::NODATASUM));
                if is_without && !self.with.contains(&(tree, key.objectid)) {
                    without.insert(key.objectid);
                }
            }
            ItemType::EXTENT_DATA => {
                let Ok(FileExtent::Regular { header, extent, preallocated }) =
                    FileExtent::parse(data)
                else {
                    return;
                };
                let Some(start) = extent.disk_bytenr() else { return };
                let whole = (start.0, start.0.saturating_add(extent.disk_num_bytes.get()));
                let from = start.0.saturating_add(extent.offset.get());
                let part = match header.compression {
                    0 => (from, from.saturating_add(extent.num_bytes.get())),
                    _ => whole,
                };
                if without.contains(&key.objectid) || preallocated {
                    self.refused.push(part);
                } else {
                    self.needed.push(part);
                    self.allowed.push(whole);
                }
            }
            _ => {}
        });
    }
}
