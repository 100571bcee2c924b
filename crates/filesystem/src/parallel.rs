//! Work on many pieces by several threads: compressing, checksums, changes of many inodes.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// More threads than this do not help one caller.
const MOST_THREADS: usize = 8;

/// What `work` makes of each of `pieces`, in their order. The caller's thread works too; threads beside
/// it live as long as this call.
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
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut done = run();
        for helper in helpers {
            done.extend(helper.join().expect("a helper does not panic"));
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn at_next<'a, T>(pieces: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Relaxed);
    pieces.get(at).map(|piece| (at, piece))
}

fn available() -> usize {
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    let count = || thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    *AVAILABLE.get_or_init(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        for len in [0, 1, 2, 1000] {
            let pieces: Vec<u64> = (0..len).collect();
            let squares = map(&pieces, |piece| piece * piece);
            assert_eq!(squares, pieces.iter().map(|piece| piece * piece).collect::<Vec<_>>());
        }
    }
}
