//! Threads of the lowest priority that keep processors from sleeping.
//!
//! # Invariants
//! - A thread spins only with the scheduling class SCHED_IDLE: any other thread takes its processor
//!   at once.
//! - The threads spin only between [`KeepAwake::keep`] and [`KeepAwake::rest`]. They sleep
//!   otherwise.

use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::keep::KeepAwake;

/// The most processors to keep awake.
const MOST_THREADS: usize = 16;
/// How often a thread spins before it looks whether to go on.
const SPINS: u32 = 1000;

/// One thread for each processor that this process may use.
#[derive(Debug, Default)]
pub(super) struct IdleThreads {
    spins: AtomicBool,
    is_ended: Mutex<bool>,
    changed: Condvar,
}

/// Ends the threads when dropped.
struct Owner<'t>(&'t IdleThreads);

impl IdleThreads {
    /// Runs `govern` with the threads, and ends them.
    pub(super) fn during(govern: impl FnOnce(&mut dyn KeepAwake)) {
        let threads = Self::default();
        thread::scope(|scope| {
            let threads = &threads;
            let mut owner = Owner(threads);
            for processor in processors() {
                let run = move || threads.run(processor);
                // Without the thread this processor may sleep.
                let _ = thread::Builder::new().name("larder-idle".into()).spawn_scoped(scope, run);
            }
            govern(&mut owner);
        });
    }

    /// Spins on `processor` whenever it is to be kept awake.
    fn run(&self, processor: usize) {
        let mut only = CpuSet::new();
        only.set(processor);
        if sched_setaffinity(None, &only).is_err() || become_idle_class().is_err() {
            return;
        }
        loop {
            let mut is_ended = self.is_ended.lock();
            self.changed
                .wait_while(&mut is_ended, |is_ended| !*is_ended && !self.spins.load(Relaxed));
            if *is_ended {
                return;
            }
            drop(is_ended);
            while self.spins.load(Relaxed) {
                (0..SPINS).for_each(|_| hint::spin_loop());
            }
        }
    }
}

impl KeepAwake for Owner<'_> {
    fn keep(&mut self) {
        if !self.0.spins.swap(true, Relaxed) {
            let _state = self.0.is_ended.lock();
            self.0.changed.notify_all();
        }
    }

    fn rest(&mut self) {
        self.0.spins.store(false, Relaxed);
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.rest();
        *self.0.is_ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// The processors that this process may use, as many as are kept awake.
fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).take(MOST_THREADS).collect()
}

/// Gives this thread the scheduling class SCHED_IDLE.
fn become_idle_class() -> io::Result<()> {
    // The kernel's parameters are a priority alone. musl's are longer, and its function refuses.
    let priority: libc::c_int = 0;
    // SAFETY: the call reads the priority, which outlives it; 0 stands for the calling thread.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn threads_run_at_idle_priority_and_end() {
        let class = thread::spawn(|| {
            become_idle_class().unwrap();
            // SAFETY: 0 stands for the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(class.join().unwrap(), libc::SCHED_IDLE);
        let start = Instant::now();
        IdleThreads::during(|threads| {
            threads.keep();
            thread::sleep(Duration::from_millis(10));
            threads.rest();
            threads.keep();
        });
        assert!(start.elapsed() < Duration::from_secs(60), "they have ended");
    }
}
