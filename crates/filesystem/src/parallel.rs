//! Work on many pieces by several threads: compression, checksums, changes of many inodes.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// More threads than this do not help one caller.
const MOST_THREADS: usize = 8;
/// The most pieces that one thread does in a row.
const STRETCH: usize = 64;

/// The results of `work` for each of `pieces`, in their order. The caller's thread works too;
/// further threads live as long as this call.
pub fn map<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = available().min(pieces.len());
    if threads <= 1 {
        return pieces.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((at, piece)) = at_next(pieces, &next) {
            done.push((at, work(piece)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        // Without a further thread this is slower, no more.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let helpers: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut done = run();
        for helper in helpers {
            // A panic of the thread becomes the caller's.
            done.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Like [`map`], for pieces of which neighbours touch the same things: one thread does a run of
/// them.
pub fn map_in_stretches<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let stretch = pieces.len().div_ceil(available()).clamp(1, STRETCH);
    let stretches: Vec<&[T]> = pieces.chunks(stretch).collect();
    let done = map(&stretches, |stretch| stretch.iter().map(&work).collect::<Vec<R>>());
    done.into_iter().flatten().collect()
}

/// Does `work` for each of `pieces`, in runs. Goes on after an error, and returns the error of the
/// first piece that failed.
pub(crate) fn in_stretches<T: Sync, E: Send>(
    pieces: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    map_in_stretches(pieces, work).into_iter().collect()
}

fn at_next<'a, T>(pieces: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Relaxed);
    pieces.get(at).map(|piece| (at, piece))
}

/// How many threads work at once at most.
pub(crate) fn available() -> usize {
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    let count = || thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    *AVAILABLE.get_or_init(count)
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
