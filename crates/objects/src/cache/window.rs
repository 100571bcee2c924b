//! How much a request asks for.

/// The most chunks of one request.
pub(super) const MOST_CHUNKS: u64 = 8;

/// How many chunks a request asks for: more while most of what was fetched is used.
#[derive(Debug)]
pub(super) struct Window {
    chunks: u64,
    /// Chunks that requests brought.
    pub(super) fetched: u64,
    /// Those of them that a thread has used.
    pub(super) touched: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { chunks: 1, fetched: 0, touched: 0 }
    }
}

impl Window {
    /// The length of the next request.
    pub(super) fn next(&mut self) -> u64 {
        if self.fetched > 0 {
            if self.touched * 2 > self.fetched {
                self.chunks = (self.chunks * 2).min(MOST_CHUNKS);
            } else if self.touched * 4 < self.fetched {
                self.chunks = (self.chunks / 2).max(1);
            }
        }
        if self.fetched >= 4 * MOST_CHUNKS {
            self.fetched /= 2;
            self.touched /= 2;
        }
        self.chunks
    }
}
