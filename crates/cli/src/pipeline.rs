//! Work on many threads whose results come out in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Batches that may wait to be taken for each thread: bounds memory when one batch is slow.
const WINDOW_PER_THREAD: usize = 4;

struct State<R> {
    /// The next batch that a worker takes.
    next: usize,
    /// The next batch that the consumer takes.
    wanted: usize,
    done: BTreeMap<usize, R>,
    stopped: bool,
}

/// Calls `work` on every batch of `items` and `consume` on each result, in the order of the items.
///
/// `work` runs on as many threads as there are cores, `consume` on the caller's. At most
/// [`WINDOW_PER_THREAD`] results for each thread are kept. An error of `consume` ends the work and
/// is returned.
pub fn in_order<T, R, E>(
    items: &[T],
    batch_len: usize,
    work: impl Fn(&[T]) -> R + Sync,
    mut consume: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    T: Sync,
    R: Send,
{
    let batches: Vec<&[T]> = items.chunks(batch_len).collect();
    let threads = larder_parallel::threads().get().min(batches.len());
    if threads <= 1 {
        return batches.into_iter().try_for_each(|batch| consume(work(batch)));
    }
    let state = Mutex::new(State { next: 0, wanted: 0, done: BTreeMap::new(), stopped: false });
    let changed = Condvar::new();
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let mut guard = lock();
            while !guard.stopped && guard.next >= guard.wanted + threads * WINDOW_PER_THREAD {
                guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            let number = guard.next;
            if guard.stopped || number >= batches.len() {
                return;
            }
            guard.next += 1;
            drop(guard);
            let result = work(batches[number]);
            lock().done.insert(number, result);
            changed.notify_all();
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
        for number in 0..batches.len() {
            let mut guard = lock();
            let result = loop {
                if let Some(result) = guard.done.remove(&number) {
                    break result;
                }
                guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
            };
            guard.wanted = number + 1;
            drop(guard);
            changed.notify_all();
            if let Err(error) = consume(result) {
                lock().stopped = true;
                changed.notify_all();
                return Err(error);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let items: Vec<u32> = (0..10_000).collect();
        let mut seen = Vec::new();
        let result: Result<(), ()> = in_order(&items, 7, <[u32]>::to_vec, |batch| {
            seen.extend(batch);
            Ok(())
        });
        assert_eq!(result, Ok(()));
        assert_eq!(seen, items);
    }

    #[test]
    fn an_error_ends_the_work() {
        let items: Vec<u32> = (0..10_000).collect();
        let result = in_order(
            &items,
            1,
            |batch| batch[0],
            |number| {
                if number == 100 { Err(number) } else { Ok(()) }
            },
        );
        assert_eq!(result, Err(100));
    }
}
