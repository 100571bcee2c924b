//! Threads that help callers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::processors::{threads, use_all};

/// A thread ends after it had nothing to do for this time.
const IDLE: Duration = Duration::from_secs(10);

/// The threads of a process.
pub(crate) struct Pool {
    /// A forked process has no threads of this pool.
    process: u32,
    most_threads: usize,
    state: Mutex<State>,
    /// There is work to begin.
    added: Condvar,
    /// A thread has ended its part of some work.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    idle: usize,
    last_id: u64,
    works: Vec<Work>,
}

/// Work of a caller that has not returned.
struct Work {
    id: u64,
    /// It is there as long as this is.
    run: &'static (dyn Fn() + Sync),
    /// Threads that may still begin it.
    to_begin: usize,
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl Pool {
    pub(crate) fn new(most_threads: usize) -> Self {
        Self {
            process: process::id(),
            most_threads,
            state: Mutex::default(),
            added: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// The pool of this process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());
        let known = SHARED.load(Ordering::Acquire);
        // SAFETY: it is null, or came from a box that nobody frees.
        let pool = unsafe { known.as_ref::<'static>() };
        if let Some(pool) = pool.filter(|pool| pool.process == process::id()) {
            return pool;
        }
        // The caller's thread works too.
        let new = Box::into_raw(Box::new(Self::new(threads().get() - 1)));
        match SHARED.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it came from a box that nobody frees.
            Ok(_) => unsafe { &*new },
            Err(others) => {
                // SAFETY: no other thread has seen the new one; the other one is as above, and not
                // null since it has replaced `known`.
                unsafe {
                    drop(Box::from_raw(new));
                    &*others
                }
            }
        }
    }

    /// Runs `run` on this thread, and at the same time on up to `helpers` others that are free. Each
    /// of them ends before this returns; a panic of one becomes the caller's.
    pub(crate) fn run(&'static self, helpers: usize, run: &(dyn Fn() + Sync)) {
        let helpers = helpers.min(self.most_threads);
        if helpers == 0 {
            return run();
        }
        let mut added = Added { pool: self, id: self.add(helpers, run) };
        run();
        if let Some(panic) = added.withdraw() {
            resume_unwind(panic);
        }
    }

    fn add(&'static self, helpers: usize, run: &(dyn Fn() + Sync)) -> u64 {
        // SAFETY: only the lifetime changes. `Added::withdraw` runs before the caller's borrow ends,
        // and after that no thread uses the function.
        let run =
            unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(run) };
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.works.push(Work { id, run, to_begin: helpers, running: 0, panic: None });
        for _ in state.idle..helpers {
            if state.threads == self.most_threads || !self.start_thread() {
                break;
            }
            state.threads += 1;
        }
        drop(state);
        self.added.notify_all();
        id
    }

    /// Starts a thread. Without it the work is slower, no more.
    fn start_thread(&'static self) -> bool {
        let builder = thread::Builder::new().name("larder-parallel".into());
        builder.spawn(|| self.help()).is_ok()
    }

    /// Helps callers as long as there are any.
    fn help(&self) {
        use_all();
        let mut state = self.state.lock();
        loop {
            let waiting = state.works.iter_mut().find(|work| work.to_begin > 0);
            let Some(work) = waiting else {
                state.idle += 1;
                let is_over = self.added.wait_for(&mut state, IDLE).timed_out();
                state.idle -= 1;
                if is_over && state.works.iter().all(|work| work.to_begin == 0) {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            work.to_begin -= 1;
            work.running += 1;
            let (id, run) = (work.id, work.run);
            drop(state);
            // The work stays in `works` until `running` is zero, and its caller waits for that.
            let ran = catch_unwind(AssertUnwindSafe(run));
            state = self.state.lock();
            if let Some(work) = state.works.iter_mut().find(|work| work.id == id) {
                work.running -= 1;
                work.panic = work.panic.take().or(ran.err());
            }
            self.ended.notify_all();
        }
    }
}

/// Work that others may be doing.
struct Added {
    pool: &'static Pool,
    id: u64,
}

impl Added {
    /// Lets no other thread begin the work, and waits for those that have. Returns the panic of one.
    fn withdraw(&mut self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.pool.state.lock();
        loop {
            let at = state.works.iter().position(|work| work.id == self.id)?;
            let work = &mut state.works[at];
            work.to_begin = 0;
            if work.running == 0 {
                return state.works.swap_remove(at).panic;
            }
            self.pool.ended.wait(&mut state);
        }
    }
}

impl Drop for Added {
    /// Also after a panic of the caller.
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn pool(most_threads: usize) -> &'static Pool {
        Box::leak(Box::new(Pool::new(most_threads)))
    }

    #[test]
    fn threads_that_are_free_help() {
        let pool = pool(3);
        for _ in 0..100 {
            // All four must meet.
            let meeting = Barrier::new(4);
            pool.run(3, &|| {
                meeting.wait();
            });
        }
        assert!(pool.state.lock().threads <= 3 && pool.state.lock().works.is_empty());
    }

    /// All threads of the pool wait for a lock that a caller holds: it goes on alone.
    #[test]
    fn a_caller_waits_for_no_thread_that_has_not_begun() {
        let pool = pool(2);
        let (lock, begun, alone) = (Mutex::new(()), Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            let held = lock.lock();
            scope.spawn(|| {
                pool.run(2, &|| {
                    begun.wait();
                    drop(lock.lock());
                });
            });
            begun.wait();
            pool.run(2, &|| {
                alone.fetch_add(1, SeqCst);
            });
            assert_eq!(alone.load(SeqCst), 1);
            drop(held);
        });
    }

    #[test]
    fn work_may_ask_for_help_itself() {
        let pool = pool(2);
        let count = AtomicUsize::new(0);
        let count_one = || {
            count.fetch_add(1, SeqCst);
        };
        pool.run(2, &|| pool.run(2, &|| pool.run(2, &count_one)));
        assert!((1..=27).contains(&count.into_inner()));
    }

    #[test]
    fn a_panic_of_any_thread_is_the_callers() {
        let pool = pool(1);
        let this = thread::current().id();
        for panics_here in [true, false] {
            let meeting = Barrier::new(2);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                pool.run(1, &|| {
                    meeting.wait();
                    assert!((thread::current().id() == this) != panics_here, "as planned");
                });
            }));
            assert!(panicked.is_err());
        }
        let meeting = Barrier::new(2);
        pool.run(1, &|| {
            meeting.wait();
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn helpers_may_run_where_the_process_may() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let of_process = sched_getaffinity(Some(rustix::process::getpid())).unwrap();
        let mut first = CpuSet::new();
        first.set((0..CpuSet::MAX_CPU).find(|cpu| of_process.is_set(*cpu)).unwrap());
        thread::spawn(move || {
            sched_setaffinity(None, &first).unwrap();
            let this = thread::current().id();
            let meeting = Barrier::new(2);
            pool(1).run(1, &|| {
                meeting.wait();
                let processors = sched_getaffinity(None).unwrap();
                assert!(thread::current().id() == this || processors == of_process);
            });
        })
        .join()
        .unwrap();
    }
}
