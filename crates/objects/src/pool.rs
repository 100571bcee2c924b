//! Threads that work for a device in the background.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce(&Jobs<'_>) + Send>;

/// Threads that run jobs, the oldest first. Each begins when a job finds no other one idle.
/// Dropping the pool waits for all jobs.
pub(crate) struct Pool(Arc<Shared>);

/// Where jobs of a pool put further ones.
pub(crate) struct Jobs<'a>(&'a Arc<Shared>);

struct Shared {
    most_threads: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(most_threads: usize) -> Self {
        Self(Arc::new(Shared {
            most_threads,
            queue: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        }))
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        Jobs(&self.0).add(job);
    }

    /// Runs a job before those that wait. It may add further ones.
    pub(crate) fn run_first(&self, job: impl FnOnce(&Jobs<'_>) + Send + 'static) {
        self.0.push(|jobs| jobs.push_front(Box::new(job)));
    }

    /// Forgets the jobs that wait for a thread.
    pub(crate) fn cancel_waiting(&self) {
        self.0.queue.lock().jobs.clear();
    }

    /// How many jobs wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.0.queue.lock().jobs.len()
    }
}

impl Jobs<'_> {
    pub(crate) fn add(&self, job: impl FnOnce() + Send + 'static) {
        self.0.push(|jobs| jobs.push_back(Box::new(move |_: &Jobs<'_>| job())));
    }
}

impl Shared {
    fn push(self: &Arc<Self>, push: impl FnOnce(&mut VecDeque<Job>)) {
        let mut queue = self.queue.lock();
        push(&mut queue.jobs);
        // A closed pool has a thread: the one whose job adds this one.
        let is_short = queue.jobs.len() > queue.idle && !queue.is_closed;
        drop(queue);
        self.changed.notify_one();
        if is_short {
            self.start_thread();
        }
    }

    fn start_thread(self: &Arc<Self>) {
        let mut threads = self.threads.lock();
        if threads.len() < self.most_threads {
            let shared = Arc::clone(self);
            let builder = thread::Builder::new().name("larder-objects".to_owned());
            let thread = builder.spawn(move || shared.run());
            threads.push(thread.expect("the system starts threads"));
        }
    }

    fn run(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job(&Jobs(self));
                queue = self.queue.lock();
            } else if queue.is_closed {
                return;
            } else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_all();
        // A job may be starting one more.
        loop {
            let Some(thread) = self.0.threads.lock().pop() else { return };
            // A job that panicked has been reported.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("most_threads", &self.0.most_threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_pool_that_goes_runs_what_its_jobs_add() {
        for threads in 1..4 {
            let done = Arc::new(AtomicUsize::new(0));
            let pool = Pool::new(threads);
            for _ in 0..20 {
                let done = Arc::clone(&done);
                pool.run_first(move |jobs| {
                    for _ in 0..5 {
                        let done = Arc::clone(&done);
                        jobs.add(move || {
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
            drop(pool);
            assert_eq!(done.load(Ordering::Relaxed), 100);
        }
    }
}
