//! Requests that are in progress while their callers are killed.
//!
//! Once a thread has taken a request, the kernel waits for the reply, whatever happens to the caller:
//! a program could not be killed while a device or a store is silent. So the request of a process
//! that is being killed gets a reply early: `EINTR`.
//!
//! # Invariants
//! - Only the request of a dying process ends early. Programs do not expect that stat(2) fails with
//!   `EINTR` because some other signal came.
//! - Over a ring only the thread of the entry can reply early. So another one serves requests that
//!   may take long (`io_uring/handed_over.rs`). For all others the kernel waits.
//! - The thread that serves the request goes on, and its own reply reaches no program. It then tells
//!   the [handler](super::serving::Handler::unheard).
//! - Before the early reply, the place says that the caller waits no more. Once it is killed, another
//!   thread of its process may run a program with more rights under its number: a handler that has
//!   read what the caller may do asks [whether the caller still waited](Place::caller_waits).

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::{Errno, write};
use zerocopy::IntoBytes;

use crate::protocol::abi::OutHeader;

/// The time between two looks at the callers of interrupted requests. Most requests end within it.
const PAUSE: Duration = Duration::from_millis(100);
/// So many looks do not find a request: it has ended. The first may come before its thread has
/// noted it.
const MOST_MISSES: u32 = 5;
/// `SIGKILL` in a mask of signals.
const SIGKILL: u64 = 1 << 8;

/// The requests that threads serve now, and those of them that were interrupted.
#[derive(Debug, Default)]
pub(super) struct InProgress {
    places: Mutex<Vec<Arc<Place>>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    interrupted: Vec<Interrupted>,
    is_ended: bool,
}

#[derive(Debug)]
struct Interrupted {
    unique: u64,
    misses: u32,
}

/// The way of an early reply.
pub(super) trait Early: Send + Sync {
    /// Ends the request `unique` with `EINTR`. It fails if the request was answered meanwhile.
    fn end(&self, unique: u64) -> io::Result<()>;
}

impl Early for OwnedFd {
    fn end(&self, unique: u64) -> io::Result<()> {
        let error = -Errno::INTR.raw_os_error();
        let header = OutHeader { len: size_of::<OutHeader>() as u32, error, unique };
        write(self, header.as_bytes())?;
        Ok(())
    }
}

/// The request that one thread serves.
pub(super) struct Place {
    early_reply: Arc<dyn Early>,
    /// Its number; 0 for none.
    unique: AtomicU64,
    /// The process that waits for it.
    pid: AtomicU32,
    /// The number of the last request that got an early reply.
    early: AtomicU64,
}

impl Place {
    /// The thread begins to serve a request.
    pub(super) fn begins(&self, unique: u64, pid: u32) {
        self.pid.store(pid, SeqCst);
        self.unique.store(unique, SeqCst);
    }

    /// Whether the caller of the request that the thread serves still waits.
    pub(super) fn caller_waits(&self) -> bool {
        self.early.load(SeqCst) != self.unique.load(SeqCst)
    }

    /// The thread has no request.
    pub(super) fn ends(&self) {
        self.unique.store(0, SeqCst);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("unique", &self.unique).finish_non_exhaustive()
    }
}

/// A thread that has left no place.
pub(super) struct Entered<'i> {
    all: &'i InProgress,
    pub(super) place: Arc<Place>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.all.places.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

/// Ends the thread when dropped, also while a panic unwinds.
struct Ending<'i>(&'i InProgress);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

impl InProgress {
    /// A thread begins, in whose place `early_reply` can reply.
    pub(super) fn enter(&self, early_reply: Arc<dyn Early>) -> Entered<'_> {
        let (unique, pid, early) = Default::default();
        let place = Arc::new(Place { early_reply, unique, pid, early });
        self.places.lock().push(place.clone());
        Entered { all: self, place }
    }

    /// The caller of the request `unique` got a signal.
    pub(super) fn interrupt(&self, unique: u64) {
        self.state.lock().interrupted.push(Interrupted { unique, misses: 0 });
        self.changed.notify_all();
    }

    /// Replies to the requests of dying processes while `serve` runs.
    pub(super) fn during(&self, serve: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.state.lock().is_ended = false;
        thread::scope(|scope| {
            let _ending = Ending(self);
            let watch = || self.watch();
            thread::Builder::new().name("larder-signals".into()).spawn_scoped(scope, watch)?;
            serve()
        })
    }

    fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            self.changed
                .wait_while(&mut state, |state| state.interrupted.is_empty() && !state.is_ended);
            if !state.is_ended {
                self.changed.wait_for(&mut state, PAUSE);
            }
            if state.is_ended {
                return;
            }
            state.interrupted.retain_mut(|interrupted| !self.look(interrupted));
        }
    }

    /// Looks at the caller of a request. Returns whether there is nothing more to do.
    fn look(&self, interrupted: &mut Interrupted) -> bool {
        let unique = interrupted.unique;
        let found = |place: &&Arc<Place>| place.unique.load(SeqCst) == unique;
        let Some(place) = self.places.lock().iter().find(found).cloned() else {
            interrupted.misses += 1;
            return interrupted.misses == MOST_MISSES;
        };
        if !is_dying(place.pid.load(SeqCst)) {
            return false;
        }
        place.early.store(unique, SeqCst);
        let _ = place.early_reply.end(unique);
        true
    }
}

/// Whether a process is being killed: by SIGKILL, or by another signal that it does not handle.
fn is_dying(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    let mut masks = pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.any(|mask| mask & SIGKILL != 0)
}
