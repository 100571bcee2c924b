//! The progress of a check, and its end before time.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The phases of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Reading superblocks and the inner blocks of every tree.
    Trees,
    /// Reading the extent tree and other trees that hold no files.
    Space,
    /// Reading the leaves of every subvolume.
    Files,
    /// Comparing related items.
    Relations,
    /// Reading data and comparing it with its checksums.
    Data,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trees => "reading trees",
            Self::Space => "checking space",
            Self::Files => "checking files",
            Self::Relations => "checking relations",
            Self::Data => "checking data",
        })
    }
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Bytes done in this phase.
    pub done_bytes: u64,
    /// Bytes to do in this phase; 0 if unknown.
    pub total_bytes: u64,
}

/// The caller stopped the check through [`Options::progress`](crate::Options::progress).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the check was stopped before its end")]
pub struct Stopped;

/// Is told of the progress, and says whether the check goes on.
pub(crate) type Observer<'a> = &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync);

/// Counts the progress and reports it.
///
/// Once the caller has stopped the check, readers read nothing more. What the check finds from then
/// on means nothing, and no report is made of it.
pub(crate) struct Tracker<'a> {
    tell: Option<Observer<'a>>,
    now: Mutex<Progress>,
    is_stopped: AtomicBool,
}

impl<'a> Tracker<'a> {
    pub(crate) fn new(tell: Option<Observer<'a>>) -> Self {
        let now = Progress { phase: Phase::Trees, done_bytes: 0, total_bytes: 0 };
        Self { tell, now: Mutex::new(now), is_stopped: AtomicBool::new(false) }
    }

    /// Starts a phase; `total_bytes` is 0 if unknown.
    pub(crate) fn begin(&self, phase: Phase, total_bytes: u64) {
        self.update(|now| *now = Progress { phase, done_bytes: 0, total_bytes });
    }

    /// Adds `bytes` to the progress of the phase.
    pub(crate) fn advance(&self, bytes: u64) {
        self.update(|now| now.done_bytes = now.done_bytes.saturating_add(bytes));
    }

    /// Reports under the lock, so that the reported progress only grows.
    fn update(&self, change: impl FnOnce(&mut Progress)) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut now);
        if let Some(tell) = self.tell
            && tell(*now).is_break()
        {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Fails if the caller has stopped the check.
    pub(crate) fn go_on(&self) -> Result<(), Stopped> {
        if self.is_stopped() { Err(Stopped) } else { Ok(()) }
    }
}
