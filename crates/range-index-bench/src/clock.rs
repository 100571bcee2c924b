//! Runs the same loop on several threads for a fixed time and counts turns.
//!
//! With the processor's clock, turns are given per second of processor time of the threads, which
//! other programs on the machine do not lengthen; but waiting costs no processor time. With the
//! wall clock, waiting counts, and so do other programs: use it on a quiet machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

/// The meaning of a second.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clock {
    /// A second that one of the threads ran.
    Processor,
    /// A second that passed.
    Wall,
}

impl Clock {
    /// For the heading of a table.
    pub(crate) fn per_second(self) -> &'static str {
        match self {
            Clock::Processor => "per second of processor time",
            Clock::Wall => "per second",
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) threads: usize,
    pub(crate) time: Duration,
    pub(crate) clock: Clock,
}

/// The result of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) turns: f64,
    pub(crate) per_second: f64,
}

/// Calls the function that `worker` makes for each thread, over and over, for the time of the run.
/// Making it is not measured.
pub(crate) fn rate<W: FnMut()>(run: Run, worker: impl Fn(usize, SmallRng) -> W + Sync) -> Rate {
    let barrier = Barrier::new(run.threads + 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..run.threads)
            .map(|me| {
                let (barrier, stop, worker) = (&barrier, &stop, &worker);
                scope.spawn(move || {
                    let mut turn = worker(me, SmallRng::seed_from_u64(me as u64 + 1));
                    barrier.wait();
                    let begin = processor_seconds();
                    let mut turns = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        turn();
                        turns += 1;
                    }
                    (turns as f64, processor_seconds() - begin)
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        thread::sleep(run.time);
        stop.store(true, Ordering::Relaxed);
        let done = workers.into_iter().map(|worker| worker.join().expect("a worker"));
        let (turns, processor) = done.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let seconds = match run.clock {
            Clock::Processor => processor,
            Clock::Wall => begin.elapsed().as_secs_f64(),
        };
        Rate { turns, per_second: turns / seconds }
    })
}

/// Seconds of processor time of this thread.
fn processor_seconds() -> f64 {
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
