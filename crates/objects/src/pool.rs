//! Threads that work for a device in the background.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that run jobs, the oldest first. Each begins when a job finds no other one idle.
/// Dropping the pool waits for all jobs.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    most_threads: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(most_threads: usize) -> Self {
        Self { shared: Arc::default(), most_threads, threads: Mutex::default() }
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push_back(Box::new(job));
        let is_short = queue.jobs.len() > queue.idle;
        drop(queue);
        self.shared.changed.notify_one();
        if is_short {
            self.start_thread();
        }
    }

    fn start_thread(&self) {
        let mut threads = self.threads.lock();
        if threads.len() < self.most_threads {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("larder-objects".to_owned());
            let thread = builder.spawn(move || shared.run());
            threads.push(thread.expect("the system starts threads"));
        }
    }

    /// Forgets the jobs that wait for a thread.
    pub(crate) fn cancel_waiting(&self) {
        self.shared.queue.lock().jobs.clear();
    }

    /// How many jobs wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
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
        self.shared.queue.lock().is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // A job that panicked has been reported.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("most_threads", &self.most_threads).finish_non_exhaustive()
    }
}
