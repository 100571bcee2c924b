//! Keeping processors out of deep sleep while requests keep coming.
//!
//! Serving a request takes a few microseconds. A processor that sleeps when the request or its
//! reply comes takes several times as long to wake up.
//!
//! # Invariants
//! - Processors are kept awake only while [`BUSY_REQUESTS`] or more requests come in each [`TICK`],
//!   and for [`QUIET_TICKS`] after.
//! - A mount without requests wakes no thread. A mount with few requests wakes one at most once for
//!   each [`BUSY_REQUESTS`] of them.
//! - A request costs one atomic addition, and no system call while requests keep coming.

mod idle_threads;
mod keep;
mod latency;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::idle_threads::IdleThreads;
use self::keep::KeepAwake;
use self::latency::LatencyRequest;

/// How often the pace of requests is measured while they come.
const TICK: Duration = Duration::from_millis(4);
/// With so many requests in a tick, requests keep coming.
const BUSY_REQUESTS: u64 = 8;
/// After so many ticks with fewer requests, they have stopped.
const QUIET_TICKS: u32 = 4;

/// Keeps processors awake while requests keep coming, if that is wanted.
#[derive(Debug)]
pub(super) struct Awake {
    is_wanted: bool,
    /// Requests so far.
    requests: AtomicU64,
    /// The thread sleeps until requests come.
    is_asleep: AtomicBool,
    is_ended: Mutex<bool>,
    changed: Condvar,
}

/// What to do after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Requests keep coming: processors are kept awake.
    Busy,
    /// There may be more soon: nothing changes.
    Unclear,
    /// Requests have stopped: processors may sleep, and the thread sleeps too.
    Quiet,
}

/// Judges the pace of requests.
#[derive(Debug, Default)]
struct Governor {
    quiet_ticks: u32,
}

impl Awake {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            requests: AtomicU64::new(0),
            is_asleep: AtomicBool::new(true),
            is_ended: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Counts a request that came.
    pub(super) fn count_request(&self) {
        let before = self.requests.fetch_add(1, Relaxed);
        let is_due = (before + 1).is_multiple_of(BUSY_REQUESTS);
        if is_due && self.is_asleep.load(Relaxed) && self.is_asleep.swap(false, Relaxed) {
            // Under the lock, or the thread could miss it between looking and waiting.
            let _state = self.is_ended.lock();
            self.changed.notify_all();
        }
    }

    /// Keeps processors awake when requests keep coming while `serve` runs.
    pub(super) fn during(&self, serve: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.is_wanted {
            return serve();
        }
        thread::scope(|scope| {
            let _ending = Ending(self);
            let govern = || match LatencyRequest::new() {
                Some(mut latency) => self.govern(&mut latency),
                None => IdleThreads::during(|idle_threads| self.govern(idle_threads)),
            };
            // Without the thread requests are served more slowly.
            let _ = thread::Builder::new().name("larder-awake".into()).spawn_scoped(scope, govern);
            serve()
        })
    }

    /// Keeps processors awake by `way` while requests keep coming, until serving ends.
    fn govern(&self, way: &mut dyn KeepAwake) {
        while self.sleep_until_requests_come() {
            let mut governor = Governor::default();
            let mut counted = self.requests.load(Relaxed);
            while self.tick() {
                let requests = self.requests.load(Relaxed);
                match governor.judge(requests - counted) {
                    Pace::Busy => way.keep(),
                    Pace::Unclear => {}
                    Pace::Quiet => break,
                }
                counted = requests;
            }
            way.rest();
        }
    }

    /// Waits until requests come. Returns false once serving ends.
    fn sleep_until_requests_come(&self) -> bool {
        let mut is_ended = self.is_ended.lock();
        self.is_asleep.store(true, Relaxed);
        self.changed
            .wait_while(&mut is_ended, |is_ended| !*is_ended && self.is_asleep.load(Relaxed));
        !*is_ended
    }

    /// Waits for a tick. Returns false once serving ends.
    fn tick(&self) -> bool {
        let mut is_ended = self.is_ended.lock();
        if !*is_ended {
            self.changed.wait_for(&mut is_ended, TICK);
        }
        !*is_ended
    }
}

impl Governor {
    /// The pace after a tick in which `requests` came.
    fn judge(&mut self, requests: u64) -> Pace {
        if requests >= BUSY_REQUESTS {
            self.quiet_ticks = 0;
            return Pace::Busy;
        }
        self.quiet_ticks += 1;
        if self.quiet_ticks < QUIET_TICKS { Pace::Unclear } else { Pace::Quiet }
    }
}

/// Ends the thread when dropped, also while a panic unwinds.
struct Ending<'a>(&'a Awake);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.is_ended.lock() = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Instant;

    use super::*;

    #[test]
    fn requests_keep_coming_until_several_ticks_bring_few() {
        let mut governor = Governor::default();
        assert_eq!(governor.judge(1), Pace::Unclear);
        assert_eq!(governor.judge(BUSY_REQUESTS), Pace::Busy);
        for _ in 1..QUIET_TICKS {
            assert_eq!(governor.judge(BUSY_REQUESTS - 1), Pace::Unclear);
        }
        assert_eq!(governor.judge(0), Pace::Quiet);
    }

    /// Says what it is told.
    struct Told(Sender<&'static str>);

    impl KeepAwake for Told {
        fn keep(&mut self) {
            self.0.send("keep").unwrap();
        }

        fn rest(&mut self) {
            self.0.send("rest").unwrap();
        }
    }

    #[test]
    fn processors_are_kept_awake_only_while_requests_come() {
        let awake = Awake::new(true);
        let (told, tells) = channel();
        thread::scope(|scope| {
            let _ending = Ending(&awake);
            scope.spawn(|| awake.govern(&mut Told(told)));
            let start = Instant::now();
            let mut kept = false;
            while !kept && start.elapsed() < Duration::from_secs(60) {
                awake.count_request();
                kept = tells.try_recv() == Ok("keep");
            }
            assert!(kept, "many requests came");
            let wait = || tells.recv_timeout(Duration::from_secs(60)).expect("an end of requests");
            while wait() != "rest" {}
            // The thread sleeps: only more requests could wake it.
            (1..BUSY_REQUESTS).for_each(|_| awake.count_request());
        });
        assert!(tells.iter().all(|told| told == "rest"), "few requests keep nothing awake");
    }
}
