//! What compressing takes, shared by all who write back.
//!
//! # Invariants
//! - There are at most as many compressors as threads can compress at once. A thread has one for one piece, and
//!   waits for nothing while it has it.
//! - At most [`BATCHES`] batches of several pieces are in memory, compressed and not written. Who has its turn waits for
//!   compressors and devices only.

use larder_format::compression::{Compression, Compressor};
use parking_lot::{Condvar, Mutex};

use super::compress::Piece;
use crate::parallel;

/// Batches that may be on their way.
const BATCHES: usize = 4;
/// Pieces of a batch for each thread that compresses them.
const PIECES_PER_THREAD: usize = 2;

/// Compressors, and turns.
pub(super) struct Workshop {
    idle: Mutex<Vec<Compressor>>,
    places: Places,
    turns: Places,
}

/// So many can be taken at a time.
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that is taken.
pub(super) struct Place<'p>(&'p Places);

impl Places {
    fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for one.
    fn take(&self) -> Place<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

impl Default for Workshop {
    fn default() -> Self {
        let places = Places::new(parallel::available());
        Self { idle: Mutex::default(), places, turns: Places::new(BATCHES) }
    }
}

impl Workshop {
    /// How many pieces are compressed before they are written.
    pub(super) fn batch_len() -> usize {
        PIECES_PER_THREAD * parallel::available()
    }

    /// Waits for a turn with `batch`, until the result is dropped. A single piece has it at once.
    pub(super) fn begin(&self, batch: &[Piece<'_>]) -> Option<Place<'_>> {
        (batch.len() > 1).then(|| self.turns.take())
    }

    /// Does `work` with a compressor.
    pub(super) fn with_compressor<T>(
        &self,
        compression: Compression,
        work: impl FnOnce(&mut Compressor) -> T,
    ) -> T {
        let _place = self.places.take();
        let mut idle = self.idle.lock();
        let known = idle.iter().rposition(|it| it.compression() == compression);
        // Another's way of compressing gives its place up.
        let taken = known.map(|at| idle.swap_remove(at));
        let replaced = if taken.is_none() { idle.pop() } else { None };
        drop(idle);
        drop(replaced);
        let mut compressor = taken.unwrap_or_else(|| Compressor::new(compression));
        let done = work(&mut compressor);
        self.idle.lock().push(compressor);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use larder_format::compression::Algorithm;

    use super::*;

    #[test]
    fn there_are_never_more_compressors_than_threads_that_can_compress() {
        let workshop = Workshop::default();
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..32 {
                let algorithm = Algorithm::ALL[number % Algorithm::ALL.len()];
                let (workshop, at_once, most) = (&workshop, &at_once, &most);
                scope.spawn(move || {
                    for _ in 0..20 {
                        workshop.with_compressor(algorithm.into(), |compressor| {
                            assert_eq!(compressor.compression(), algorithm.into());
                            most.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
                            thread::yield_now();
                            at_once.fetch_sub(1, SeqCst);
                        });
                    }
                });
            }
        });
        assert!(most.into_inner() <= parallel::available());
        assert!(workshop.idle.lock().len() <= parallel::available());
    }
}
