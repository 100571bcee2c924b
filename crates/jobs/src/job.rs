//! One job.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::kind::JobKind;
use crate::pace::Pace;

/// Long work, as those see it who watch it.
#[derive(Debug)]
pub struct Job {
    kind: JobKind,
    thread: ThreadId,
    started: SystemTime,
    began: Instant,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

/// What is wanted of a job.
#[derive(Debug, Default)]
struct Wanted {
    is_cancelled: bool,
    is_paused: bool,
    /// Bytes in a second; 0 for no limit.
    limit: u64,
    pace: Pace,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// What it does.
    pub kind: JobKind,
    /// When it began.
    pub started: SystemTime,
    /// For how long it has run, pauses included.
    pub duration: Duration,
    /// How many bytes it has done.
    pub done_bytes: u64,
    /// How many there are to do, as far as is known.
    pub total_bytes: u64,
    /// Whether it pauses.
    pub is_paused: bool,
    /// The most bytes in a second, if there is a limit.
    pub limit: Option<u64>,
}

/// The job was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was cancelled")]
pub struct Cancelled;

impl Job {
    pub(crate) fn new(kind: JobKind, total_bytes: u64) -> Self {
        Self {
            kind,
            thread: thread::current().id(),
            started: SystemTime::now(),
            began: Instant::now(),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(total_bytes),
            wanted: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What it does.
    pub fn kind(&self) -> JobKind {
        self.kind
    }

    /// The thread that began it.
    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    /// How far it is.
    pub fn status(&self) -> JobStatus {
        let wanted = self.wanted.lock();
        JobStatus {
            kind: self.kind,
            started: self.started,
            duration: self.began.elapsed(),
            done_bytes: self.done_bytes.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
            is_paused: wanted.is_paused,
            limit: Some(wanted.limit).filter(|limit| *limit > 0),
        }
    }

    /// Ends it at its next step.
    pub fn cancel(&self) {
        self.want(|wanted| wanted.is_cancelled = true);
    }

    /// Makes it wait at its next step until it may [go on](Self::go_on).
    pub fn pause(&self) {
        self.want(|wanted| wanted.is_paused = true);
    }

    /// Ends a pause.
    pub fn go_on(&self) {
        self.want(|wanted| wanted.is_paused = false);
    }

    /// Limits it to so many bytes in a second, or to none.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.want(|wanted| {
            wanted.limit = limit.unwrap_or(0);
            wanted.pace = Pace::default();
        });
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted.lock());
        self.changed.notify_all();
    }

    /// Before a piece of so many bytes: waits while the job is paused, and as long as its limit
    /// says.
    pub fn step(&self, bytes: u64) -> Result<(), Cancelled> {
        let mut wanted = self.wanted.lock();
        let mut until = None;
        loop {
            if wanted.is_cancelled {
                return Err(Cancelled);
            }
            if wanted.is_paused {
                self.changed.wait(&mut wanted);
                continue;
            }
            let now = Instant::now();
            let Wanted { limit, pace, .. } = &mut *wanted;
            let until = *until.get_or_insert_with(|| match *limit {
                0 => now,
                limit => now + pace.spend(bytes, limit, now),
            });
            // A limit that was lifted holds no longer.
            if *limit == 0 || until <= now {
                return Ok(());
            }
            self.changed.wait_until(&mut wanted, until);
        }
    }

    /// Notes how many bytes there are to do, as far as is known now.
    pub fn expect(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Relaxed);
    }

    /// Notes that so many more bytes are done.
    pub fn advance(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Relaxed);
    }
}

impl JobStatus {
    /// Bytes in a second since it began.
    pub fn rate(&self) -> u64 {
        (self.done_bytes as f64 / self.duration.as_secs_f64().max(0.001)) as u64
    }

    /// How long it will take at this rate; `None` before it has done anything.
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        let seconds = left.checked_div(self.rate())?;
        Some(Duration::from_secs(seconds))
    }
}
