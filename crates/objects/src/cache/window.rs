//! How much a request asks for.

use crate::segment::pieces::CHUNK_BYTES;

/// The most chunks of one request, if there is memory for them: 8 MiB.
pub(super) const MOST_CHUNKS: u64 = (8 << 20) / CHUNK_BYTES;

/// A longer request is so much longer.
const GROWTH: u64 = 8;

/// How many chunks to ask for where `chunk` lies, at most `most`: one where threads read here and
/// there, and more the more of what lies around it was asked for. A longer request needs half as
/// many such chunks in its place as the next shorter one asks for.
pub(super) fn chunks_around(chunk: u64, most: u64, is_wanted: impl Fn(u64) -> bool) -> u64 {
    let mut chunks = 1;
    while chunks < most {
        let longer = (GROWTH * chunks).min(most);
        let first = chunk - chunk % longer;
        let wanted = (first..first + longer).filter(|&index| is_wanted(index)).count() as u64;
        if wanted < chunks.div_ceil(2) {
            break;
        }
        chunks = longer;
    }
    chunks
}

/// Requests say something once there are so many.
const EVIDENCE: u64 = 8;

/// Counts are halved after so many requests, so that the last ones count most.
const REMEMBERED_REQUESTS: u64 = 32;

/// After so many requests of which none was worth it, the next ones are shorter.
const PATIENCE: u64 = 3;

/// How many chunks to ask for at a place of which nothing is known: more if longer requests were
/// worth it at other places.
#[derive(Debug)]
pub(super) struct Habit {
    chunks: u64,
    most: u64,
    requests: u64,
    /// Those of them that brought, or would have brought if they had been longer, what another
    /// thread wanted.
    worth_it: u64,
    /// Whether any was since the length was last raised: what a few requests have shown raises it
    /// once, and not at each of those that follow.
    is_news: bool,
    /// Requests since then that were not.
    in_vain: u64,
}

impl Habit {
    pub(super) fn new(most: u64) -> Self {
        Self { chunks: 1, most, requests: 0, worth_it: 0, is_news: false, in_vain: 0 }
    }

    /// A thread lacks a chunk, near others that were wanted or far from all.
    pub(super) fn note_missing(&mut self, is_near: bool) {
        self.requests += 1;
        if is_near {
            self.note_worth_it();
        }
        self.in_vain += 1;
        if self.is_news && self.requests >= EVIDENCE && 4 * self.worth_it > self.requests {
            self.chunks = (2 * self.chunks).min(self.most);
            self.is_news = false;
        } else if self.in_vain > PATIENCE || 8 * self.worth_it < self.requests {
            self.chunks = (self.chunks / 2).max(1);
        }
        if self.requests >= REMEMBERED_REQUESTS {
            self.requests /= 2;
            self.worth_it /= 2;
        }
    }

    /// A thread wants something that came along with what another one wanted.
    pub(super) fn note_worth_it(&mut self) {
        self.worth_it += 1;
        (self.is_news, self.in_vain) = (true, 0);
    }

    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Reads chunks in this order. Returns how many chunks came by how many requests.
    fn fetched(order: impl Iterator<Item = u64>) -> (usize, usize) {
        let (mut here, mut wanted, mut requests) = (HashSet::new(), HashSet::new(), 0);
        for chunk in order {
            if !here.contains(&chunk) {
                let count = chunks_around(chunk, MOST_CHUNKS, |index| wanted.contains(&index));
                let first = chunk - chunk % count;
                here.extend(first..first + count);
                requests += 1;
            }
            wanted.insert(chunk);
        }
        (here.len(), requests)
    }

    #[test]
    fn what_is_read_as_a_whole_takes_few_requests() {
        let (chunks, requests) = fetched(0..MOST_CHUNKS);
        assert!(chunks == MOST_CHUNKS as usize && requests < 24, "{requests}");
        let mixed = (0..MOST_CHUNKS).map(|index| index * 37 % MOST_CHUNKS);
        let (chunks, requests) = fetched(mixed);
        assert!(chunks == MOST_CHUNKS as usize && requests < 24, "{requests}");
    }

    #[test]
    fn what_is_wanted_everywhere_comes_along_everywhere() {
        let mut habit = Habit::new(MOST_CHUNKS);
        for request in 0..20 {
            habit.note_missing(request % 2 == 0);
        }
        assert_eq!(habit.chunks(), MOST_CHUNKS);
        for _ in 0..100 {
            habit.note_missing(false);
            habit.note_worth_it();
        }
        assert_eq!(habit.chunks(), MOST_CHUNKS);
        for _ in 0..REMEMBERED_REQUESTS * 2 {
            habit.note_missing(false);
        }
        assert_eq!(habit.chunks(), 1);
    }

    #[test]
    fn reads_that_lie_together_make_others_elsewhere_little_longer() {
        // The trees of a file system are read first, and then a large file here and there.
        let mut habit = Habit::new(MOST_CHUNKS);
        for _ in 0..12 {
            habit.note_missing(true);
            habit.note_worth_it();
        }
        let mut asked = 0;
        for _ in 0..60 {
            habit.note_missing(false);
            asked += habit.chunks();
        }
        assert!(asked <= 60 + 2 * MOST_CHUNKS * PATIENCE, "{asked}");
        assert_eq!(habit.chunks(), 1);
        // Those of a small file system say little.
        let mut habit = Habit::new(MOST_CHUNKS);
        let mut asked = 0;
        for request in 0..68 {
            habit.note_missing(request < 4);
            asked += habit.chunks();
        }
        assert!(asked <= 68 + 8, "{asked}");
    }

    #[test]
    fn reads_here_and_there_ask_for_little() {
        let far_apart = (0..60).map(|index| index * 7_919 % 10_000 * 50);
        assert_eq!(fetched(far_apart), (60, 60));
    }
}
