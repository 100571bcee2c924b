//! Data that only a log refers to so far.

use larder_format::item::{FileExtent, FileExtentHeader, InodeFlags, InodeItem, RegularExtent};
use larder_format::{BlockGroupFlags, ItemType, Logical, objectid, read_exact_item};

use super::Log;
use crate::blocks::{Forest, Item, for_each_item_again};
use crate::checksums::{ChecksumRanges, Piece, item_range};
use crate::context::Context;
use crate::evidence::{ChecksumEvidence, LogEvidence};
use crate::extents::ExtentTable;
use crate::report::Location;

/// A range of logical addresses.
type Range = (u64, u64);

/// Checks the data that logs refer to. Returns the data that has checksums there, with these.
pub(crate) fn check(
    context: &Context<'_>,
    forest: &Forest,
    logs: &[Log],
    extents: &ExtentTable,
    checksums: &ChecksumRanges,
) -> LoggedData {
    let mut logged = LoggedData::default();
    let mut new: Vec<NewExtent> = Vec::new();
    for log in logs {
        let mut contents = Contents::default();
        for_each_item_again(context, forest, &log.root, |item| contents.add(context, &item));
        for extent in &contents.extents {
            if extent.needs_checksums {
                contents.check_checksums(context, log, extent, checksums);
            }
            if extents.is_whole && !extent.is_known(extents) {
                extent.check_unallocated(context, log, extents);
                new.push(NewExtent { range: extent.whole, subvolume: log.subvolume });
            }
        }
        logged.add(context, contents);
    }
    logged.new_extents = check_overlaps(context, forest, new);
    logged
}

/// Logged data with its logged checksums.
#[derive(Debug, Default)]
pub(crate) struct LoggedData {
    pub(crate) pieces: Vec<Piece>,
    /// Data extents that the last commit does not know, in order.
    pub(crate) new_extents: Vec<Range>,
}

impl LoggedData {
    /// Bytes of the data.
    pub(crate) fn total_bytes(&self, context: &Context<'_>) -> u64 {
        self.pieces.iter().map(|piece| piece.len_bytes(context)).sum()
    }

    /// Adds the contents of a log. Ignores checksums of data that it no longer refers to.
    fn add(&mut self, context: &Context<'_>, contents: Contents) {
        let size = context.csum_type.size();
        let read = contents.ranges_with_checksums();
        let is_read = |logical: u64| {
            let after = read.partition_point(|range| range.0 <= logical);
            after.checked_sub(1).is_some_and(|index| logical < read[index].1)
        };
        for piece in contents.checksums {
            let mut start = piece.start;
            for checksum in piece.checksums.chunks_exact(size) {
                match self.pieces.last_mut().filter(|last| last.end(context) == start) {
                    _ if !is_read(start) => {}
                    Some(last) => last.checksums.extend_from_slice(checksum),
                    None => self.pieces.push(Piece { start, checksums: checksum.to_vec() }),
                }
                start += context.sectorsize;
            }
        }
    }
}

/// A data extent that the last commit does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NewExtent {
    range: Range,
    subvolume: u64,
}

/// A file extent in a log.
#[derive(Clone, Copy, Debug)]
struct LoggedExtent {
    ino: u64,
    /// The data extent.
    whole: Range,
    /// The part of it whose checksums are needed to read the file.
    read: Range,
    needs_checksums: bool,
}

impl LoggedExtent {
    fn new(ino: u64, header: &FileExtentHeader, extent: &RegularExtent, needs: bool) -> Self {
        let start = extent.disk_bytenr.get();
        let whole = (start, start.saturating_add(extent.disk_num_bytes.get()));
        let read_start = start.saturating_add(extent.offset.get());
        let read = match header.compression {
            0 => (read_start, read_start.saturating_add(extent.num_bytes.get())),
            _ => whole,
        };
        Self { ino, whole, read, needs_checksums: needs }
    }

    /// Whether the last commit has this extent.
    fn is_known(&self, extents: &ExtentTable) -> bool {
        let known = extents.get(self.whole.0);
        known.is_some_and(|known| known.is_data() && known.end() == self.whole.1)
    }

    fn check_unallocated(&self, context: &Context<'_>, log: &Log, extents: &ExtentTable) {
        let (start, end) = self.whole;
        let location = Location::tree(log.subvolume).inode(self.ino).at(start);
        let len_bytes = end - start;
        if let Some(other) = extents.within(start, end).first() {
            let (other_bytes, other) = (other.len_bytes, other.start);
            let over = LogEvidence::OverExtent { len_bytes, other_bytes, other };
            return context.find(location, over);
        }
        let chunk = context.chunks.get(Logical(start));
        let holds_data = chunk.is_some_and(|chunk| {
            end <= chunk.end().0 && chunk.flags().contains(BlockGroupFlags::DATA)
        });
        if !holds_data {
            context.find(location, LogEvidence::OutsideOfData { len_bytes });
        }
    }
}

/// What the log of a subvolume says about data.
#[derive(Debug, Default)]
struct Contents {
    /// The inode whose items are being read, and whether its data has checksums.
    inode: Option<(u64, bool)>,
    extents: Vec<LoggedExtent>,
    /// In order of addresses.
    checksums: Vec<Piece>,
}

impl Contents {
    fn add(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let ino = item.key.objectid;
        match item.key.item_type {
            ItemType::INODE_ITEM => {
                let inode = read_exact_item::<InodeItem>(item.data).ok();
                let has_checksums =
                    |inode: &InodeItem| !inode.flags().contains(InodeFlags::NODATASUM);
                self.inode = inode.map(|inode| (ino, has_checksums(inode)));
            }
            ItemType::EXTENT_DATA => {
                let Ok(FileExtent::Regular { header, extent, preallocated }) =
                    FileExtent::parse(item.data)
                else {
                    return;
                };
                if extent.disk_bytenr().is_some() {
                    let needs = !preallocated && self.inode == Some((ino, true));
                    self.extents.push(LoggedExtent::new(ino, header, extent, needs));
                }
            }
            ItemType::EXTENT_CSUM => {
                if let Ok((start, _)) = item_range(context, item) {
                    self.checksums.push(Piece { start, checksums: item.data.to_vec() });
                }
            }
            _ => {}
        }
    }

    /// The data that must have checksums, in order, without overlaps.
    fn ranges_with_checksums(&self) -> Vec<Range> {
        let needing = self.extents.iter().filter(|extent| extent.needs_checksums);
        let mut ranges: Vec<Range> = needing.map(|extent| extent.read).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let joins = next.0 <= range.1;
            if joins {
                range.1 = range.1.max(next.1);
            }
            joins
        });
        ranges
    }

    fn check_checksums(
        &self,
        context: &Context<'_>,
        log: &Log,
        extent: &LoggedExtent,
        committed: &ChecksumRanges,
    ) {
        let missing_bytes = |(start, end): Range| {
            let len_bytes = end.saturating_sub(start);
            committed.covered_bytes(start, len_bytes).map_or(0, |covered| len_bytes - covered)
        };
        let (mut at, end) = extent.read;
        let mut missing = 0;
        let first = self.checksums.partition_point(|piece| piece.end(context) <= at);
        for piece in self.checksums[first..].iter().take_while(|piece| piece.start < end) {
            missing += missing_bytes((at, piece.start.max(at)));
            at = piece.end(context).max(at);
        }
        missing += missing_bytes((at, end.max(at)));
        if missing > 0 {
            let location = Location::tree(log.subvolume).inode(extent.ino).at(extent.read.0);
            context.find(location, ChecksumEvidence::MissingOfLog { bytes: missing });
        }
    }
}

/// Checks that the extents that logs will allocate overlap neither each other nor blocks of logs.
/// Returns them in order.
fn check_overlaps(context: &Context<'_>, forest: &Forest, mut new: Vec<NewExtent>) -> Vec<Range> {
    new.sort_unstable();
    new.dedup_by_key(|extent| extent.range);
    for pair in new.windows(2).filter(|pair| pair[0].range.1 > pair[1].range.0) {
        let NewExtent { range: (start, end), subvolume } = pair[1];
        let (len_bytes, other) = (end - start, pair[0].range.0);
        let over = LogEvidence::OverLoggedData { len_bytes, other };
        context.find(Location::tree(subvolume).at(start), over);
    }
    let blocks = forest.blocks().iter().filter(|block| block.tree == objectid::TREE_LOG);
    for block in blocks {
        let end = block.logical.saturating_add(context.nodesize as u64);
        let before = new.partition_point(|extent| extent.range.0 < end);
        if before > 0 && new[before - 1].range.1 > block.logical {
            let start = new[before - 1].range.0;
            let location = Location::tree(objectid::TREE_LOG).at(block.logical);
            context.find(location, LogEvidence::InLoggedData { start });
        }
    }
    new.into_iter().map(|extent| extent.range).collect()
}
