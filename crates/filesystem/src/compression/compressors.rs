//! Compressors, shared by all threads that write data back.
//!
//! # Invariants
//! - There are at most as many compressors as threads can compress at once. A thread uses one for
//!   one piece, and waits for nothing meanwhile.
//! - At most [`BATCHES`] batches of several pieces are in memory, compressed and not yet written. A
//!   thread with a batch waits for compressors and devices only.

use larder_format::compression::{Compression, Compressor};
use parking_lot::{Condvar, Mutex};

use crate::compression::compress::Piece;

/// Batches that may be in memory.
const BATCHES: usize = 4;
/// Pieces of a batch for each thread that compresses them.
const PIECES_PER_THREAD: usize = 2;

/// The compressors of a file system.
pub(crate) struct Compressors {
    idle: Mutex<Vec<Compressor>>,
    compressing: Permits,
    batches: Permits,
}

/// A bounded number of permits.
struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit, until it is dropped.
pub(crate) struct Permit<'p>(&'p Permits);

impl Permits {
    fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for one.
    fn take(&self) -> Permit<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

impl Default for Compressors {
    fn default() -> Self {
        let compressing = Permits::new(larder_parallel::threads_for_one());
        Self { idle: Mutex::default(), compressing, batches: Permits::new(BATCHES) }
    }
}

impl Compressors {
    /// How many pieces are compressed before they are written.
    pub(crate) fn batch_len() -> usize {
        PIECES_PER_THREAD * larder_parallel::threads_for_one()
    }

    /// Waits until there may be one more batch. It exists until the result is dropped. A single
    /// piece need not wait.
    pub(crate) fn begin(&self, batch: &[Piece<'_>]) -> Option<Permit<'_>> {
        (batch.len() > 1).then(|| self.batches.take())
    }

    /// Does `work` with a compressor.
    pub(crate) fn with_compressor<T>(
        &self,
        compression: Compression,
        work: impl FnOnce(&mut Compressor) -> T,
    ) -> T {
        let _permit = self.compressing.take();
        let mut idle = self.idle.lock();
        let known = idle.iter().rposition(|it| it.compression() == compression);
        // A compressor for another algorithm goes, so that there are never more.
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
        let compressors = Compressors::default();
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..32 {
                let algorithm = Algorithm::ALL[number % Algorithm::ALL.len()];
                let (compressors, at_once, most) = (&compressors, &at_once, &most);
                scope.spawn(move || {
                    for _ in 0..20 {
                        compressors.with_compressor(algorithm.into(), |compressor| {
                            assert_eq!(compressor.compression(), algorithm.into());
                            most.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
                            thread::yield_now();
                            at_once.fetch_sub(1, SeqCst);
                        });
                    }
                });
            }
        });
        assert!(most.into_inner() <= larder_parallel::threads_for_one());
        assert!(compressors.idle.lock().len() <= larder_parallel::threads_for_one());
    }
}
