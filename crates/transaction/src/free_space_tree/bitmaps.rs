//! Free space as bits, one for each sector, and converting between bits and ranges.

use std::ops::Range;

use larder_format::item::USING_BITMAPS;
use larder_format::{ItemType, Key, Logical};

use super::{GroupFreeSpace, extents, range_key, wrong};
use crate::error::{Error, Result};
use crate::items::Items;

/// A bitmap item: the range that it covers, and its bits, least significant first in each byte.
struct Bitmap {
    range: Range<u64>,
    bits: Vec<u8>,
}

impl Bitmap {
    fn key(&self) -> Key {
        let len_bytes = self.range.end - self.range.start;
        Key::new(self.range.start, ItemType::FREE_SPACE_BITMAP, len_bytes)
    }
}

fn test(bits: &[u8], bit: usize) -> bool {
    bits[bit / 8] & (1 << (bit % 8)) != 0
}

fn flip(bits: &mut [u8], bit: usize) {
    bits[bit / 8] ^= 1 << (bit % 8);
}

impl GroupFreeSpace {
    /// Marks a free range as used. Returns by how much the number of free ranges changes.
    pub(super) fn clear_bits(&self, tree: &mut dyn Items, range: &Range<u64>) -> Result<i64> {
        self.flip_bits(tree, range, true)?;
        Ok(self.free_neighbours(tree, range)? - 1)
    }

    /// Marks a used range as free. Returns by how much the number of free ranges changes.
    pub(super) fn set_bits(&self, tree: &mut dyn Items, range: &Range<u64>) -> Result<i64> {
        self.flip_bits(tree, range, false)?;
        Ok(1 - self.free_neighbours(tree, range)?)
    }

    /// How many of the two sectors next to a range are free.
    fn free_neighbours(&self, tree: &dyn Items, range: &Range<u64>) -> Result<i64> {
        let before = range.start.checked_sub(u64::from(self.sectorsize));
        let mut count = 0;
        for sector in before.into_iter().chain([range.end]).filter(|s| self.group.contains(s)) {
            let bitmap = self.bitmap_at(tree, sector)?;
            count += i64::from(test(&bitmap.bits, self.bit(&bitmap.range, sector)));
        }
        Ok(count)
    }

    /// Flips every bit of a range, all of which are `were` now.
    fn flip_bits(&self, tree: &mut dyn Items, range: &Range<u64>, were: bool) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let mut bitmap = self.bitmap_at(tree, at)?;
            let end = range.end.min(bitmap.range.end);
            for bit in self.bit(&bitmap.range, at)..self.bit(&bitmap.range, end) {
                if test(&bitmap.bits, bit) != were {
                    let state = if were { "in use" } else { "free" };
                    let problem =
                        format!("the free space tree says that part of {range:?} is {state}");
                    return Err(Error::extent(Logical(at), problem));
                }
                flip(&mut bitmap.bits, bit);
            }
            tree.replace(bitmap.key(), &bitmap.bits)?;
            at = end;
        }
        Ok(())
    }

    fn bit(&self, covered: &Range<u64>, address: u64) -> usize {
        ((address - covered.start) / u64::from(self.sectorsize)) as usize
    }

    /// The bitmap that covers an address of the group.
    fn bitmap_at(&self, tree: &dyn Items, address: u64) -> Result<Bitmap> {
        let last = Key::new(address, ItemType::FREE_SPACE_BITMAP, u64::MAX);
        if let Some((key, bits)) = tree.at_or_before(last)? {
            let bitmap = self.bitmap(tree, key, bits)?;
            if bitmap.range.contains(&address) {
                return Ok(bitmap);
            }
        }
        let key = Key::new(address, ItemType::FREE_SPACE_BITMAP, 0);
        Err(wrong(tree, key, "no bitmap covers this address"))
    }

    fn bitmap(&self, tree: &dyn Items, key: Key, bits: Vec<u8>) -> Result<Bitmap> {
        let end = key.objectid.checked_add(key.offset);
        let range = key.objectid..end.unwrap_or_default();
        let sectors = key.offset / u64::from(self.sectorsize);
        let fits = key.item_type == ItemType::FREE_SPACE_BITMAP
            && self.group.start <= range.start
            && range.end <= self.group.end
            && sectors.div_ceil(8) == bits.len() as u64;
        if fits {
            Ok(Bitmap { range, bits })
        } else {
            Err(wrong(tree, key, "no bitmap of its group"))
        }
    }

    /// The free ranges in order, whether they are bitmaps or not.
    pub(super) fn ranges(&self, tree: &dyn Items) -> Result<Vec<Range<u64>>> {
        let uses_bitmaps = self.info(tree)?.flags.get() & USING_BITMAPS != 0;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (key, data) in self.items(tree)? {
            if !uses_bitmaps {
                let range = extents::range_of(tree, key)?;
                let touches = ranges.last().is_some_and(|last| range.start <= last.end);
                if key.item_type != ItemType::FREE_SPACE_EXTENT
                    || touches
                    || range.end > self.group.end
                {
                    return Err(wrong(tree, key, "not a free range apart from the one before"));
                }
                ranges.push(range);
                continue;
            }
            let bitmap = self.bitmap(tree, key, data)?;
            for bit in 0..self.bit(&bitmap.range, bitmap.range.end) {
                if test(&bitmap.bits, bit) {
                    let start = bitmap.range.start + bit as u64 * u64::from(self.sectorsize);
                    let end = start + u64::from(self.sectorsize);
                    match ranges.last_mut() {
                        Some(last) if last.end == start => last.end = end,
                        _ => ranges.push(start..end),
                    }
                }
            }
        }
        Ok(ranges)
    }

    /// Replaces the ranges by equivalent bitmaps. The caller updates the info item.
    pub(super) fn convert_to_bitmaps(&self, tree: &mut dyn Items) -> Result<()> {
        let ranges = self.ranges(tree)?;
        ranges.iter().try_for_each(|range| tree.remove(range_key(range)))?;
        let mut next = ranges.into_iter().peekable();
        for start in self.group.clone().step_by(self.bitmap_covers() as usize) {
            let range = start..self.group.end.min(start + self.bitmap_covers());
            let sectors = self.bit(&range, range.end);
            let mut bitmap = Bitmap { bits: vec![0; sectors.div_ceil(8)], range };
            while let Some(free) = next.peek().filter(|free| free.start < bitmap.range.end) {
                let first = free.start.max(bitmap.range.start);
                let end = free.end.min(bitmap.range.end);
                for bit in self.bit(&bitmap.range, first)..self.bit(&bitmap.range, end) {
                    flip(&mut bitmap.bits, bit);
                }
                if free.end > bitmap.range.end {
                    break;
                }
                next.next();
            }
            tree.insert(bitmap.key(), &bitmap.bits)?;
        }
        Ok(())
    }

    /// Replaces the bitmaps by equivalent ranges. The caller updates the info item.
    pub(super) fn convert_to_extents(&self, tree: &mut dyn Items) -> Result<()> {
        let ranges = self.ranges(tree)?;
        let keys: Vec<Key> = self.items(tree)?.into_iter().map(|(key, _)| key).collect();
        keys.into_iter().try_for_each(|key| tree.remove(key))?;
        ranges.iter().try_for_each(|range| tree.insert(range_key(range), &[]))
    }
}
