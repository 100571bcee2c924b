//! Free space for tree blocks.

use larder_format::{BlockGroupFlags, SpaceKind};
use larder_volume::Volume;

use super::error::RepairError;

/// Ranges of address space, sorted and apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// The union of ranges (start, end).
    pub(super) fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
            match joined.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => joined.push((start, end)),
            }
        }
        Self(joined)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// What of `start..end` is in none of the ranges.
    pub(super) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut gaps, mut at) = (Vec::new(), start);
        let first = self.0.partition_point(|range| range.1 <= start);
        for range in self.0[first..].iter().take_while(|range| range.0 < end) {
            if at < range.0 {
                gaps.push((at, range.0));
            }
            at = at.max(range.1);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }
}

/// Addresses for new tree blocks: none lies in what is in use, or where a superblock belongs.
#[derive(Clone, Debug)]
pub(super) struct Free {
    nodesize: u64,
    metadata: Vec<u64>,
    system: Vec<u64>,
    taken: Vec<(u64, u64)>,
}

impl Free {
    pub(super) fn new(volume: &Volume, mut used: Vec<(u64, u64)>) -> Self {
        let nodesize = u64::from(volume.nodesize());
        let chunks = volume.chunks();
        for chunk in chunks.iter() {
            used.extend(chunk.superblock_ranges().iter().map(|(at, len)| (at.0, at.0 + len)));
        }
        let used = Ranges::new(used);
        let mut free =
            Self { nodesize, metadata: Vec::new(), system: Vec::new(), taken: Vec::new() };
        for chunk in chunks.iter() {
            let list = if chunk.flags().contains(BlockGroupFlags::METADATA) {
                &mut free.metadata
            } else if chunk.flags().contains(BlockGroupFlags::SYSTEM) {
                &mut free.system
            } else {
                continue;
            };
            for (start, end) in used.gaps(chunk.logical().0, chunk.end().0) {
                let first = start.next_multiple_of(nodesize);
                let whole = end.saturating_sub(first) / nodesize;
                list.extend((0..whole).map(|number| first + number * nodesize));
            }
        }
        // Taken from the end.
        free.metadata.reverse();
        free.system.reverse();
        free
    }

    /// An address for a block of `tree`.
    pub(super) fn take(&mut self, tree: u64) -> Result<u64, RepairError> {
        let kind = SpaceKind::of_tree(tree);
        let list = if kind == SpaceKind::System { &mut self.system } else { &mut self.metadata };
        let logical = list.pop().ok_or(RepairError::NoSpace(kind))?;
        self.taken.push((logical, logical + self.nodesize));
        Ok(logical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_no_range_has() {
        let used = Ranges::new(vec![(10, 20), (15, 30), (40, 50), (5, 5)]);
        assert_eq!(used.gaps(0, 60), [(0, 10), (30, 40), (50, 60)]);
        assert_eq!(used.gaps(12, 45), [(30, 40)]);
        assert_eq!(used.gaps(40, 50), []);
    }
}
