//! Work for each of many pieces.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::pool::Pool;
use crate::processors::threads;

/// More threads than this do not help one caller.
const MOST_THREADS: usize = 8;
/// The most pieces that one thread does in a row.
const STRETCH: usize = 64;

/// How many threads work for one caller at most.
pub fn threads_for_one() -> usize {
    threads().get().min(MOST_THREADS)
}

/// The results of `work` for each of `pieces`, in their order. The caller's thread works too.
pub fn map<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let helpers = threads_for_one().min(pieces.len()).saturating_sub(1);
    if helpers == 0 {
        return pieces.iter().map(work).collect();
    }
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(pieces.len())));
    Pool::shared().run(helpers, &|| {
        let mut done = Vec::new();
        while let Some((at, piece)) = at_next(pieces, &next) {
            done.push((at, work(piece)));
        }
        all.lock().append(&mut done);
    });
    let mut done = all.into_inner();
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Like [`map`], for pieces of which neighbours touch the same things: one thread does a run of
/// them.
pub fn map_in_stretches<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let stretch = pieces.len().div_ceil(threads_for_one()).clamp(1, STRETCH);
    let stretches: Vec<&[T]> = pieces.chunks(stretch).collect();
    let done = map(&stretches, |stretch| stretch.iter().map(&work).collect::<Vec<R>>());
    done.into_iter().flatten().collect()
}

/// Does `work` for each of `pieces`, in runs. Goes on after an error.
///
/// # Errors
/// That of the first piece that failed.
pub fn in_stretches<T: Sync, E: Send>(
    pieces: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    map_in_stretches(pieces, work).into_iter().collect()
}

fn at_next<'a, T>(pieces: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Relaxed);
    pieces.get(at).map(|piece| (at, piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_and_the_first_error_counts() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let pieces: Vec<usize> = (0..len).collect();
            let done = AtomicUsize::new(0);
            let outcome = in_stretches(&pieces, |piece| {
                done.fetch_add(1, Relaxed);
                if piece % 100 == 70 { Err(*piece) } else { Ok(()) }
            });
            assert_eq!(outcome, if len > 70 { Err(70) } else { Ok(()) });
            assert_eq!(done.into_inner(), len);
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        for len in [0, 1, 2, 1000] {
            let pieces: Vec<u64> = (0..len).collect();
            let squares = map(&pieces, |piece| piece * piece);
            assert_eq!(squares, pieces.iter().map(|piece| piece * piece).collect::<Vec<_>>());
        }
    }
}
