//! How to open a file system for writing.

use std::time::Duration;

use larder_transaction::ResyncProgress;

use crate::core::tuning::Tuning;

/// How to open a file system for writing.
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Unchanged tree blocks are kept in memory up to this many bytes.
    pub cache_bytes: usize,
    /// How often to commit in the background; if none, there are commits when a caller asks and when space is
    /// needed.
    pub commit_interval: Option<Duration>,
    /// Where there are commits in the background, one begins when changed tree blocks take this many bytes.
    /// Each commit copies again what the next one changes, and goes on beside others' work.
    pub commit_bytes: usize,
    /// Data that waits to be written back takes at most this many bytes. Other changes that wait for their trees have
    /// a bound in proportion. A thread that writes more waits until enough is written back.
    pub dirty_bytes: usize,
    /// To have some things done in other ways, to compare them.
    pub tuning: Tuning,
    /// Told from the thread that opens how far the copying has come to devices that missed commits.
    pub resync_progress: &'a dyn Fn(ResyncProgress),
}
