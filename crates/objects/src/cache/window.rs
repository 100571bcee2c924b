//! How much a request asks for.

use std::collections::VecDeque;

use super::ChunkKey;
use crate::id::Kind;
use crate::segment::pieces::CHUNK_BYTES;

/// The most chunks of one request, if there is memory for them: 8 MiB.
pub(super) const MOST_CHUNKS: u64 = (8 << 20) / CHUNK_BYTES;

/// One chunk that was asked for says nothing about those around it: a file's checksums lie between
/// its data.
const LEAST_WANTED: u64 = 2;

/// A longer request is so much longer.
const GROWTH: u64 = 8;

/// How many chunks to ask for where `chunk` lies, at most `most`: one where threads read here and
/// there, and more the more of what lies around it was asked for. A longer request needs as
/// many such chunks in its place as the next shorter one asks for, and [some](LEAST_WANTED).
pub(super) fn chunks_around(chunk: u64, most: u64, is_wanted: impl Fn(u64) -> bool) -> u64 {
    let mut chunks = 1;
    while chunks < most {
        let longer = (GROWTH * chunks).min(most);
        let first = chunk - chunk % longer;
        let wanted = (first..first + longer).filter(|&index| is_wanted(index)).count() as u64;
        if wanted < chunks.max(LEAST_WANTED) {
            break;
        }
        chunks = longer;
    }
    chunks
}

/// So many places are remembered: those that threads came to last.
const REMEMBERED: usize = 16;

/// Fewer places say nothing about others.
const EVIDENCE: usize = 4;

/// How many chunks to ask for at a place of which nothing is known: as many as threads wanted at most
/// of the places that they came to before. A place is where the longest request would ask.
#[derive(Debug)]
pub(super) struct Places {
    most: u64,
    /// How many chunks were wanted at each; the last one comes first.
    wanted: VecDeque<(ChunkKey, u64)>,
}

impl Places {
    pub(super) fn new(most: u64) -> Self {
        Self { most, wanted: VecDeque::new() }
    }

    /// A thread wants a chunk that none wanted before.
    pub(super) fn note_wanted(&mut self, (segment, chunk): ChunkKey) {
        if segment.kind() == Kind::Flush {
            return;
        }
        let place = (segment, chunk / self.most);
        match self.wanted.iter_mut().find(|(it, _)| *it == place) {
            Some((_, count)) => *count += 1,
            None => {
                self.wanted.truncate(REMEMBERED - 1);
                self.wanted.push_front((place, 1));
            }
        }
    }

    /// How many chunks to ask for.
    pub(super) fn chunks(&self) -> u64 {
        let mut counts: Vec<u64> = self.wanted.iter().map(|(_, count)| *count).collect();
        if counts.len() < EVIDENCE {
            return 1;
        }
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        median.next_power_of_two().min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::id::ObjectId;

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

    /// The chunk `chunk` of a place.
    fn at(place: u32, chunk: u64) -> ChunkKey {
        (ObjectId::new(1, place), chunk)
    }

    #[test]
    fn what_is_wanted_everywhere_comes_along_everywhere() {
        let mut places = Places::new(MOST_CHUNKS);
        for chunk in 0..8 * MOST_CHUNKS {
            places.note_wanted(at((chunk / MOST_CHUNKS) as u32, chunk % MOST_CHUNKS));
        }
        assert_eq!(places.chunks(), MOST_CHUNKS);
        for place in 8..24 {
            places.note_wanted(at(place, 5));
        }
        assert_eq!(places.chunks(), 1);
    }

    #[test]
    fn reads_that_lie_together_make_no_others_longer() {
        // The trees of a file system are read first, and then a large file here and there.
        let mut places = Places::new(MOST_CHUNKS);
        for chunk in 0..3 * MOST_CHUNKS {
            places.note_wanted(at((chunk % 3) as u32, chunk / 3));
        }
        for place in 3..100 {
            assert!(places.chunks() <= if place < 8 { MOST_CHUNKS } else { 1 }, "{place}");
            places.note_wanted(at(place, 7));
            places.note_wanted(at(0, u64::from(place)));
        }
    }

    #[test]
    fn reads_here_and_there_ask_for_little() {
        let far_apart = (0..60).map(|index| index * 7_919 % 10_000 * 50);
        assert_eq!(fetched(far_apart), (60, 60));
    }
}
