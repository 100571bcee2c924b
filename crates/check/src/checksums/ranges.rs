//! The checksum tree: which data has checksums.

use larder_format::item::csum_count;
use larder_format::{ItemType, objectid};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ChecksumEvidence, Evidence, ItemEvidence};
use crate::extents::ExtentTable;
use crate::report::Location;

/// A range of logical addresses that has checksums.
#[derive(Clone, Copy, Debug)]
struct Covered {
    start: u64,
    end: u64,
    /// Bytes of all ranges before it.
    bytes_before: u64,
}

/// Ranges of logical addresses that have checksums, in order, neighbours joined.
#[derive(Debug, Default)]
pub(crate) struct ChecksumRanges {
    ranges: Vec<Covered>,
    /// Whether all of the tree could be read. If not, a missing range proves nothing.
    is_whole: bool,
}

impl ChecksumRanges {
    /// Reads the checksum tree.
    pub(crate) fn read(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot) -> Self {
        let mut ranges: Vec<Covered> = Vec::new();
        let is_whole = for_each_item(context, forest, root, |item| {
            let (start, end) = match item_range(context, &item) {
                Ok(range) => range,
                Err(problem) => return item.find(context, problem),
            };
            match ranges.last_mut() {
                Some(last) if start < last.end => {
                    item.find(context, ChecksumEvidence::Overlap { previous_end: last.end });
                    last.end = end.max(last.end);
                }
                Some(last) if start == last.end => last.end = end,
                _ => ranges.push(Covered { start, end, bytes_before: 0 }),
            }
        });
        let mut bytes_before = 0;
        for range in &mut ranges {
            range.bytes_before = bytes_before;
            bytes_before += range.end - range.start;
        }
        Self { ranges, is_whole }
    }

    /// Bytes that have checksums.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.bytes_below(u64::MAX)
    }

    /// How many bytes of a range have checksums; `None` where the tree could not be read.
    pub(crate) fn covered_bytes(&self, start: u64, len_bytes: u64) -> Option<u64> {
        let end = start.saturating_add(len_bytes);
        self.is_whole.then(|| self.bytes_below(end) - self.bytes_below(start))
    }

    /// How many bytes below an address have checksums.
    fn bytes_below(&self, logical: u64) -> u64 {
        let after = self.ranges.partition_point(|range| range.start < logical);
        after.checked_sub(1).map_or(0, |index| {
            let Covered { start, end, bytes_before } = self.ranges[index];
            bytes_before + end.min(logical) - start
        })
    }

    /// Reports checksums of addresses that are not data: neither that of the last commit, nor that
    /// of the extents in `logged`, which are in order.
    pub(crate) fn check_allocated(
        &self,
        context: &Context<'_>,
        extents: &ExtentTable,
        logged: &[(u64, u64)],
    ) {
        if !extents.is_whole {
            return;
        }
        for Covered { start, end, .. } in &self.ranges {
            let mut at = *start;
            let data = extents.within(*start, *end).iter().filter(|extent| extent.is_data());
            let ends = data.map(|extent| (extent.start, extent.end())).chain([(*end, *end)]);
            for (data_start, data_end) in ends {
                report_unless_logged(context, at, data_start, logged);
                at = at.max(data_end);
            }
        }
    }
}

/// Reports checksums of a range without extents, except those of extents that a log will allocate.
fn report_unless_logged(context: &Context<'_>, start: u64, end: u64, logged: &[(u64, u64)]) {
    let mut at = start;
    let first = logged.partition_point(|extent| extent.1 <= start);
    for (logged_start, logged_end) in logged[first..].iter().take_while(|extent| extent.0 < end) {
        report_dangling(context, at, *logged_start);
        at = at.max(*logged_end);
    }
    report_dangling(context, at, end);
}

fn report_dangling(context: &Context<'_>, start: u64, end: u64) {
    if start < end {
        let location = Location::tree(objectid::CSUM_TREE).at(start);
        context.find(location, ChecksumEvidence::Dangling { bytes: end - start, end });
    }
}

/// The range that a checksum item covers, or the problem of the item.
pub(crate) fn item_range(context: &Context<'_>, item: &Item<'_>) -> Result<(u64, u64), Evidence> {
    if item.key.item_type != ItemType::EXTENT_CSUM || item.key.objectid != objectid::EXTENT_CSUM {
        return Err(ItemEvidence::AmongChecksums.into());
    }
    let start = item.key.offset;
    if !context.is_aligned(start) {
        return Err(ChecksumEvidence::Unaligned.into());
    }
    let count = csum_count(item.data.len(), context.csum_type)
        .map_err(|problem| ChecksumEvidence::Format { problem })? as u64;
    let end = start.checked_add(count * context.sectorsize);
    end.map(|end| (start, end)).ok_or(ChecksumEvidence::PastAll.into())
}
