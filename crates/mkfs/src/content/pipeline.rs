//! Work on many threads whose results are taken in order.
//!
//! Invariants:
//! * results are consumed in the order of the jobs, on the calling thread;
//! * jobs that are begun and not yet consumed are no more than the window, which bounds memory;
//! * every thread ends when the consumer fails: `stopped` is set under the lock, and both
//!   conditions wait for it as well.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::thread;

use parking_lot::{Condvar, Mutex};

/// Jobs that may be begun for each thread before the first of them is consumed.
const WINDOW_PER_THREAD: usize = 4;

struct State<J, R> {
    jobs: J,
    /// Results of the jobs that are begun and not consumed.
    results: VecDeque<Option<R>>,
    /// The number of consumed jobs.
    consumed: usize,
    /// Whether there are no more jobs.
    exhausted: bool,
    stopped: bool,
}

struct Shared<J, R> {
    state: Mutex<State<J, R>>,
    window: usize,
    /// Another job may begin, or there is none.
    may_begin: Condvar,
    /// The first result is ready, or there is none.
    may_consume: Condvar,
}

/// Runs `work` on every job, on `threads` threads with a worker each, and passes the results to
/// `consume` in the order of the jobs until it fails.
pub(crate) fn ordered<J, W, R, E>(
    jobs: J,
    threads: NonZeroUsize,
    new_worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, J::Item) -> R + Sync,
    mut consume: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    J: Iterator + Send,
    R: Send,
{
    let state =
        State { jobs, results: VecDeque::new(), consumed: 0, exhausted: false, stopped: false };
    let shared = Shared {
        state: Mutex::new(state),
        window: threads.get() * WINDOW_PER_THREAD,
        may_begin: Condvar::new(),
        may_consume: Condvar::new(),
    };
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            scope.spawn(|| {
                let _stop = StopOnPanic(&shared);
                let mut worker = new_worker();
                while let Some((number, job)) = shared.begin() {
                    let result = work(&mut worker, job);
                    shared.end(number, result);
                }
            });
        }
        let _stop = StopOnPanic(&shared);
        while let Some(result) = shared.next_result() {
            if let Err(error) = consume(result) {
                shared.stop();
                return Err(error);
            }
        }
        Ok(())
    })
}

impl<J: Iterator, R> Shared<J, R> {
    /// The next job and its number, once it may be begun.
    fn begin(&self) -> Option<(usize, J::Item)> {
        let mut state = self.state.lock();
        while !state.stopped && !state.exhausted && state.results.len() >= self.window {
            self.may_begin.wait(&mut state);
        }
        if state.stopped || state.exhausted {
            return None;
        }
        let Some(job) = state.jobs.next() else {
            state.exhausted = true;
            self.may_begin.notify_all();
            self.may_consume.notify_all();
            return None;
        };
        state.results.push_back(None);
        Some((state.consumed + state.results.len() - 1, job))
    }

    fn end(&self, number: usize, result: R) {
        let mut state = self.state.lock();
        let at = number - state.consumed;
        state.results[at] = Some(result);
        if at == 0 {
            self.may_consume.notify_all();
        }
    }

    /// The result of the first job that was not consumed; `None` after the last.
    fn next_result(&self) -> Option<R> {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = state.results.front_mut().and_then(Option::take) {
                state.results.pop_front();
                state.consumed += 1;
                self.may_begin.notify_one();
                return Some(result);
            }
            if state.stopped || (state.exhausted && state.results.is_empty()) {
                return None;
            }
            self.may_consume.wait(&mut state);
        }
    }
}

impl<J, R> Shared<J, R> {
    fn stop(&self) {
        self.state.lock().stopped = true;
        self.may_begin.notify_all();
        self.may_consume.notify_all();
    }
}

/// Lets the other threads end when this one panics.
struct StopOnPanic<'a, J, R>(&'a Shared<J, R>);

impl<J, R> Drop for StopOnPanic<'_, J, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn run(threads: usize, jobs: usize, stop_at: usize) -> (Vec<usize>, Result<(), usize>, usize) {
        let (mut taken, begun) = (Vec::new(), AtomicUsize::new(0));
        let result = ordered(
            0..jobs,
            NonZeroUsize::new(threads).unwrap(),
            || (),
            |(), job| {
                begun.fetch_add(1, Ordering::Relaxed);
                job * 2
            },
            |result| {
                if result == stop_at * 2 {
                    return Err(stop_at);
                }
                taken.push(result);
                Ok(())
            },
        );
        (taken, result, begun.into_inner())
    }

    #[test]
    fn results_come_in_order() {
        for threads in [1, 2, 7] {
            for jobs in [0, 1, 5, 1000] {
                let (taken, result, _) = run(threads, jobs, usize::MAX / 2);
                assert_eq!(result, Ok(()));
                assert_eq!(taken, (0..jobs).map(|job| job * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_error_ends_it_and_no_job_runs_far_ahead() {
        let (taken, result, begun) = run(3, 100_000, 10);
        assert_eq!((taken.len(), result), (10, Err(10)));
        assert!(begun <= 11 + 3 * WINDOW_PER_THREAD, "{begun} jobs were begun");
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_ends_it() {
        let threads = NonZeroUsize::new(2).unwrap();
        let work = |(): &mut (), job: usize| assert!(job != 50, "job 50");
        let _ = ordered(0..1000, threads, || (), work, |()| Ok::<_, ()>(()));
    }
}
