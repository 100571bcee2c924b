//! Work on several threads whose results come in the order in which it was begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use crate::pool::Pool;

/// A bounded number of jobs. When it is dropped, those that no thread has begun are left out.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    results: VecDeque<Receiver<T>>,
    at_once: usize,
    is_over: Arc<AtomicBool>,
    pool: Pool,
}

impl<T: Send + 'static> InOrder<T> {
    /// At most `at_once` jobs are begun whose results were not taken.
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.max(1);
        Self {
            results: VecDeque::new(),
            at_once,
            is_over: Arc::default(),
            pool: Pool::new(at_once),
        }
    }

    /// Whether the next result must be taken before a job can begin.
    pub(super) fn is_full(&self) -> bool {
        self.results.len() >= self.at_once
    }

    pub(super) fn begin(&mut self, job: impl FnOnce() -> T + Send + 'static) {
        let (done, result) = channel();
        let is_over = Arc::clone(&self.is_over);
        self.pool.run(move || {
            if !is_over.load(Ordering::Relaxed) {
                // The caller may have dropped this meanwhile, and waits for no result.
                let _ = done.send(job());
            }
        });
        self.results.push_back(result);
    }

    /// The result of the oldest job. Waits for it.
    pub(super) fn next(&mut self) -> Option<T> {
        let result = self.results.pop_front()?;
        Some(result.recv().expect("a job that panicked has been reported"))
    }
}

impl<T> Drop for InOrder<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let mut work = InOrder::new(4);
        let mut seen = Vec::new();
        for number in 0..40_u64 {
            if work.is_full() {
                seen.extend(work.next());
            }
            work.begin(move || {
                thread::sleep(Duration::from_millis(number * 7 % 5));
                number
            });
        }
        seen.extend(std::iter::from_fn(|| work.next()));
        assert!(seen.into_iter().eq(0..40));
    }
}
