//! Runs the same loop on several threads for a fixed time and counts turns.
//!
//! One thread alone is measured by its processor time, which other programs on the machine do not
//! lengthen; several are measured by the clock on the wall, since waiting is what they are about.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

/// What a measurement came to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
}

/// Calls what `worker` makes for each thread, over and over, for `time`.
pub(crate) fn rate<W: FnMut()>(
    threads: usize,
    time: Duration,
    worker: impl Fn(usize, SmallRng) -> W + Sync,
) -> Rate {
    let barrier = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|me| {
                let (barrier, stop, worker) = (&barrier, &stop, &worker);
                scope.spawn(move || {
                    let mut turn = worker(me, SmallRng::seed_from_u64(me as u64 + 1));
                    barrier.wait();
                    let begin = now(threads);
                    let mut turns = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..32 {
                            turn();
                        }
                        turns += 32;
                    }
                    turns as f64 / (now(threads) - begin)
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let per_second = workers.into_iter().map(|worker| worker.join().expect("a worker")).sum();
        Rate { per_second }
    })
}

/// Seconds since some time ago.
fn now(threads: usize) -> f64 {
    let clock = if threads == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A number below `limit`.
pub(crate) fn below(random: &mut SmallRng, limit: u64) -> u64 {
    random.random_range(0..limit)
}

/// `1.23 M` and the like.
pub(crate) fn millions(per_second: f64) -> String {
    format!("{:.2}", per_second / 1e6)
}
