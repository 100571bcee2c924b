//! Free space as the extent tree implies it, for comparing with other records.

use super::{BlockGroup, ChunkTree};
use crate::extents::ExtentTable;

/// A range of logical addresses: start and end.
pub(crate) type Range = (u64, u64);

/// The ranges of a block group that no extent holds.
pub(crate) fn between_extents(extents: &ExtentTable, group: &BlockGroup) -> Vec<Range> {
    let taken = extents.within(group.start, group.end()).iter();
    without((group.start, group.end()), taken.map(|extent| (extent.start, extent.end())))
}

/// The first difference between two lists of free ranges of a block group. Ignores the places of
/// superblock copies: nothing is allocated there, and they may count as free or not.
pub(crate) fn first_difference(
    tree: &ChunkTree,
    group: &BlockGroup,
    left: &[Range],
    right: &[Range],
) -> Option<u64> {
    let reserved: Vec<Range> = tree.chunks.get(&group.start).map_or_else(Vec::new, |chunk| {
        let ranges = chunk.superblock_ranges().into_iter();
        ranges.map(|(start, len_bytes)| (start.0, start.0.saturating_add(len_bytes))).collect()
    });
    let normal = |ranges: &[Range]| -> Vec<Range> {
        let parts = ranges.iter().flat_map(|range| without(*range, reserved.iter().copied()));
        join(parts)
    };
    let (left, right) = (normal(left), normal(right));
    let pairs = left.iter().zip(&right).find(|(a, b)| a != b);
    match pairs {
        Some((a, b)) if a.0 != b.0 => Some(a.0.min(b.0)),
        Some((a, b)) => Some(a.1.min(b.1)),
        None => left.get(right.len()).or_else(|| right.get(left.len())).map(|range| range.0),
    }
}

/// A range without some ranges, which are in order.
fn without(range: Range, holes: impl Iterator<Item = Range>) -> Vec<Range> {
    let (mut at, end) = range;
    let mut left = Vec::new();
    for (hole_start, hole_end) in holes {
        if hole_end <= at || hole_start >= end {
            continue;
        }
        if hole_start > at {
            left.push((at, hole_start));
        }
        at = at.max(hole_end);
    }
    if at < end {
        left.push((at, end));
    }
    left
}

/// Joins ranges that follow each other without a gap.
pub(crate) fn join(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut joined: Vec<Range> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some((_, last_end)) if *last_end == start => *last_end = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The free ranges in a bitmap, least significant bit first, a sector each.
pub(crate) fn of_bitmap(start: u64, bitmap: &[u8], sectorsize: u64) -> Vec<Range> {
    let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    let sectors = bits.enumerate().filter(|(_, is_free)| *is_free).filter_map(|(number, _)| {
        let at = start.checked_add(number as u64 * sectorsize)?;
        Some((at, at.checked_add(sectorsize)?))
    });
    join(sectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_holes_at_its_ends_and_inside() {
        let holes = [(0, 12), (14, 16), (16, 17), (30, 50)];
        assert_eq!(without((10, 40), holes.into_iter()), [(12, 14), (17, 30)]);
        assert_eq!(without((10, 11), holes.into_iter()), []);
    }

    #[test]
    fn bits_that_follow_each_other_are_one_range() {
        let ranges = of_bitmap(1 << 20, &[0b1100_0001, 0b0000_0001], 4096);
        let base = 1 << 20;
        assert_eq!(ranges, [(base, base + 4096), (base + 6 * 4096, base + 9 * 4096)]);
    }
}
