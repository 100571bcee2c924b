//! Counters.

use larder_volume::VolumeStats;

/// Counters since the file system was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Tree blocks: cache and readahead.
    pub trees: larder_btree::Stats,
    /// Changes of trees: locks, splits, searches.
    pub changes: larder_btree::ChangeStats,
    /// Devices: reads, errors, repaired copies.
    pub volume: VolumeStats,
    /// Compressed extents that were cached, decompressed.
    pub decompressed_hits: u64,
    /// Compressed extents that had to be decompressed.
    pub decompressions: u64,
    /// Cached extents of open files.
    pub extents: ExtentMapStats,
    /// Items of directories and inodes that wait to be put into the trees.
    pub delayed: DelayedStats,
}

/// Delayed items: index items of directories and items of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayedStats {
    /// Items that are queued now.
    pub queued_items: u64,
    /// Bytes of space that are reserved for them.
    pub reserved_bytes: u64,
    /// The most bytes so far.
    pub peak_reserved_bytes: u64,
    /// Items that went from the queues into the trees.
    pub flushed_items: u64,
    /// How often a queue was emptied.
    pub flushes: u64,
}

/// Cached extents of files that are open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtentMapStats {
    /// Extents that are cached now.
    pub entries: u64,
    /// Extents that were searched for in the trees and cached.
    pub learned: u64,
}
