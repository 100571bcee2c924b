//! Runs the same loop on several threads for a fixed time and counts turns.
//!
//! Turns are given per second of processor time that the threads used, which other programs on the
//! machine do not lengthen. Waiting costs no processor time; what threads wait for is shown by
//! the time for which locks are held and by how often they are found taken.

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
    pub(crate) turns: f64,
    /// Of processor time.
    pub(crate) seconds: f64,
}

impl Rate {
    pub(crate) fn per_second(&self) -> f64 {
        self.turns / self.seconds
    }
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
                    let begin = now();
                    let mut turns = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..32 {
                            turn();
                        }
                        turns += 32;
                    }
                    (turns as f64, now() - begin)
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let done = workers.into_iter().map(|worker| worker.join().expect("a worker"));
        done.fold(Rate::default(), |sum, (turns, seconds)| Rate {
            turns: sum.turns + turns,
            seconds: sum.seconds + seconds,
        })
    })
}

/// Seconds of processor time of this thread.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
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
