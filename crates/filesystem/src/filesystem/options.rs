//! How to open a file system for writing.

use std::time::Duration;

use larder_transaction::ResyncProgress;

use crate::settings::tuning::Tuning;

/// How to open a file system for writing.
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Unchanged tree blocks are kept in memory up to this many bytes. What is known of the extents
    /// of open files has a bound in proportion.
    pub cache_bytes: usize,
    /// How often to commit in the background. If `None`, commits happen when a caller asks and when
    /// space is needed.
    pub commit_interval: Option<Duration>,
    /// With commits in the background, one begins when changed tree blocks take this many bytes.
    /// Each commit copies again what the next one changes, and goes on while other threads work.
    pub commit_bytes: usize,
    /// The bound on dirty data, in bytes. Delayed items have a bound in proportion. A thread that
    /// writes more waits for writeback.
    pub dirty_bytes: usize,
    /// Selects other implementations, to compare them.
    pub tuning: Tuning,
    /// Called in the thread that opens, with the progress of copying to devices that missed
    /// commits.
    pub resync_progress: &'a dyn Fn(ResyncProgress),
}
