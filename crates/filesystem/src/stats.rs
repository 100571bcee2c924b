//! What was done, in numbers.

use larder_volume::VolumeStats;

use crate::Filesystem;

/// Counters since the file system was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Tree blocks: cache and readahead.
    pub trees: larder_btree::Stats,
    /// Devices: reads, errors, what was healed.
    pub volume: VolumeStats,
    /// Compressed extents that were found decompressed in memory.
    pub decompressed_hits: u64,
    /// Compressed extents that had to be decompressed.
    pub decompressions: u64,
}

impl Filesystem {
    /// What was done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            trees: self.cache().stats(),
            volume: self.volume().stats(),
            decompressed_hits: self.decompressed().hits(),
            decompressions: self.decompressed().decompressions(),
        }
    }
}
