//! How much a request asks for.

/// The most chunks of one request, if there is memory for them.
pub(super) const MOST_CHUNKS: u64 = 8;

/// Counts are halved after so many chunks, so that the last ones count most.
const REMEMBERED_CHUNKS: u64 = 4 * MOST_CHUNKS;

/// How many chunks a request asks for: more while most of what was fetched is used, fewer when most
/// of it goes unused.
#[derive(Debug)]
pub(super) struct Window {
    chunks: u64,
    most: u64,
    /// Chunks that requests brought.
    fetched: u64,
    /// Those of them that a thread has used.
    used: u64,
    /// Those that went before a thread used them.
    wasted: u64,
}

impl Window {
    /// Requests ask for `most` chunks at most, if that many are possible.
    pub(super) fn new(most: u64) -> Self {
        Self { chunks: 1, most: most.clamp(1, MOST_CHUNKS), fetched: 0, used: 0, wasted: 0 }
    }

    /// The most chunks of a request.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    pub(super) fn note_fetched(&mut self) {
        self.fetched += 1;
    }

    pub(super) fn note_used(&mut self) {
        self.used += 1;
    }

    pub(super) fn note_wasted(&mut self) {
        self.wasted += 1;
    }

    /// The length of the next request.
    pub(super) fn next(&mut self) -> u64 {
        if self.wasted > self.used {
            self.chunks = (self.chunks / 2).max(1);
        } else if self.used * 2 > self.fetched {
            self.chunks = (self.chunks * 2).min(self.most);
        }
        if self.fetched >= REMEMBERED_CHUNKS {
            self.fetched /= 2;
            self.used /= 2;
            self.wasted /= 2;
        }
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_while_their_chunks_are_used_and_shrink_when_they_are_not() {
        let mut window = Window::new(100);
        assert_eq!(window.next(), 1);
        for _ in 0..20 {
            let chunks = window.next();
            (0..chunks).for_each(|_| window.note_fetched());
            (0..chunks).for_each(|_| window.note_used());
        }
        assert_eq!(window.next(), MOST_CHUNKS);
        // Chunks that wait for their use are not wasted.
        (0..100).for_each(|_| window.note_fetched());
        assert_eq!(window.next(), MOST_CHUNKS);
        (0..100).for_each(|_| window.note_wasted());
        (0..4).for_each(|_| assert!(window.next() <= MOST_CHUNKS));
        assert_eq!(window.next(), 1);
    }
}
