//! Requests and replies through rings of io_uring: a queue for each processor, served on the
//! processor that made the requests.
//!
//! INIT comes through `/dev/fuse`. So do, also later, requests without a reply (FORGET, INTERRUPT)
//! and the server's notices. Rings are prepared before INIT is answered, so that the server can
//! keep what it agrees to: from then on the kernel holds all requests back until each queue has an
//! entry.
//!
//! # Invariants
//! - A thread has one entry of one queue, so that the kernel gives a request only to a waiting
//!   thread: to the one that became idle last.
//! - As long as a queue may have more threads, one of its threads always waits.
//! - A request that may take long is served by another thread ([`handed_over`]).
//! - At least one [seasoned](seasoned) entry of each queue waits for a request, or serves one
//!   without waiting for the kernel: so every request in a queue is served.
//! - All queues together have at most as many entries as there may be threads, or two for each
//!   possible processor, whichever is more. An entry has room for one request and a little more,
//!   and takes memory only as far as it was used.

mod entry;
mod handed_over;
mod ring;
mod seasoned;

use std::fs;
use std::io;
use std::iter;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Barrier, OnceLock};
use std::thread;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::entry::{Given, Idle, Taken};
use self::handed_over::Helpers;
use self::seasoned::{Season, Seasoned};
use super::away::FromSlot;
use super::pool::Pool;
use super::serving::{Limits, Serving};

/// Says whether this kernel's FUSE offers rings.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// The processors that the machine may ever have, as ranges.
const POSSIBLE_PROCESSORS: &str = "/sys/devices/system/cpu/possible";
/// Entries that a queue begins with, if it may have as many: all except one of them can wait for
/// the kernel.
const FIRST_ENTRIES: usize = 4;

/// The queues of a connection.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// Whether the kernel and the server use rings, once they have agreed.
    agreed: OnceLock<bool>,
    /// How many of the first entries the kernel has neither taken nor refused.
    left: AtomicUsize,
}

/// The queue of one processor.
#[derive(Debug)]
struct Queue {
    processor: u16,
    io_bytes: usize,
    pool: Pool,
    /// How many entries it begins with.
    first: usize,
    /// The kernel has taken or refused the first entries.
    registered: Barrier,
    seasoned: Seasoned,
    helpers: Helpers,
}

impl Queues {
    /// Queues for all processors, if the kernel offers them.
    pub(super) fn offered(limits: Limits) -> Option<Self> {
        let is_enabled = fs::read_to_string(ENABLED).is_ok_and(|answer| answer.trim() == "Y");
        let processors = fs::read_to_string(POSSIBLE_PROCESSORS).ok();
        let processors = count_of(processors.filter(|_| is_enabled)?.trim())?;
        let most = (limits.threads / usize::from(processors)).max(2);
        let new = |processor| Queue::new(processor, most, limits.io_bytes);
        let queues: Vec<_> = (0..processors).map(new).collect();
        let left = AtomicUsize::new(queues.iter().map(|queue| queue.first).sum());
        Some(Self { queues, agreed: OnceLock::new(), left })
    }

    /// Starts the first threads of each queue. They wait until both sides have
    /// [agreed](Self::agreed), even if this returns an error.
    pub(super) fn prepare<'s>(&'s self, serving: Serving<'s, '_>) -> io::Result<()> {
        let first = self.queues.iter().flat_map(|queue| iter::repeat_n(queue, queue.first));
        first.into_iter().try_for_each(|queue| {
            queue.start(serving, move |entry| {
                if *self.agreed.wait() {
                    queue.serve_first(entry, serving, || self.is_registered(serving));
                }
            })
        })
    }

    /// The kernel and the server have agreed to use rings, or not to.
    pub(super) fn agreed(&self, is_so: bool) {
        // If it is called twice, the first call counts.
        let _ = self.agreed.set(is_so);
    }

    /// The kernel has taken or refused one of the first entries.
    fn is_registered(&self, serving: Serving<'_, '_>) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            serving.readiness.reached();
        }
    }

    /// Whether rings were agreed on and are in use: the kernel may refuse what it offered.
    pub(super) fn are_used(&self) -> bool {
        self.agreed.get() == Some(&true) && self.queues.iter().any(|queue| queue.pool.has_threads())
    }
}

impl Queue {
    /// The queue of `processor`, which has no threads and may have `most`.
    fn new(processor: u16, most: usize, io_bytes: usize) -> Self {
        let first = most.min(FIRST_ENTRIES);
        let (pool, seasoned, helpers) = (Pool::new(most), Seasoned::default(), Helpers::new(most));
        Self {
            processor,
            io_bytes,
            pool,
            first,
            registered: Barrier::new(first),
            seasoned,
            helpers,
        }
    }

    /// Starts a thread that does `work` with an entry of its own.
    fn start<'s>(
        &'s self,
        serving: Serving<'s, '_>,
        work: impl FnOnce(Idle) + Send + 's,
    ) -> io::Result<()> {
        let entry = Idle::new(self.io_bytes)?;
        self.pool.begins();
        let serve = move || {
            work(entry);
            self.pool.ends();
        };
        let started =
            thread::Builder::new().name("larder-ring".into()).spawn_scoped(serving.scope, serve);
        started.map(|_| ()).inspect_err(|_| self.pool.ends())
    }

    /// Serves with one of the first entries. Calls `is_registered` once the kernel has taken or
    /// refused it.
    fn serve_first<'s>(
        &'s self,
        entry: Idle,
        serving: Serving<'s, '_>,
        is_registered: impl FnOnce(),
    ) {
        let given = self.register(entry, serving);
        is_registered();
        let opens = self.registered.wait().is_leader();
        let season = if opens { Season::Opens(self.first) } else { Season::Opened };
        self.serve(given, season, serving);
    }

    /// Serves with an entry that is added while requests are served.
    fn serve_later<'s>(&'s self, entry: Idle, serving: Serving<'s, '_>) {
        let given = self.register(entry, serving);
        self.serve(given, Season::Joins, serving);
    }

    /// Gives this queue an entry, which is this thread's from now on.
    fn register(&self, entry: Idle, serving: Serving<'_, '_>) -> Result<Given, Errno> {
        pin(usize::from(self.processor));
        entry.enable()?;
        entry.give(serving.device.as_fd(), self.processor)
    }

    /// Serves one request after another until the connection ends.
    fn serve<'s>(
        &'s self,
        mut given: Result<Given, Errno>,
        mut season: Season,
        serving: Serving<'s, '_>,
    ) {
        let Serving { device, awake, .. } = serving;
        while let Ok(mut entry) = given {
            self.seasoned.given(&mut season, || entry.is_waiting());
            let Ok(taken) = entry.wait() else { break };
            awake.count_request();
            self.seasoned.taken(&mut season);
            if self.pool.takes() {
                // Without one more thread serving is slower, and goes on.
                let _ = self.start(serving, move |entry| self.serve_later(entry, serving));
            }
            given = self.answer(taken, serving).give(device.as_fd(), self.processor);
            self.pool.waits(usize::MAX);
        }
        self.seasoned.ends();
    }
}

impl Queue {
    /// Serves a request, or has another thread serve it.
    fn answer<'s>(&'s self, mut taken: Taken, serving: Serving<'s, '_>) -> Idle {
        if let Some(request) = taken.copy_if_long()
            && let Some((served, body)) = self.helpers.serve(request, &self.seasoned, serving)
        {
            return taken.answer_with(&served, &body);
        }
        let Serving { handler, kernel, soon, .. } = serving;
        taken.answer(handler, &FromSlot { kernel, soon, slot: &self.seasoned })
    }
}

/// Pins this thread to `processor`, if it may run there at all.
fn pin(processor: usize) {
    let may_run = sched_getaffinity(None)
        .is_ok_and(|set| processor < CpuSet::MAX_CPU && set.is_set(processor));
    if may_run {
        let mut only = CpuSet::new();
        only.set(processor);
        // On another processor it is slower.
        let _ = sched_setaffinity(None, &only);
    }
}

/// How many numbers are in `ranges`, as in `0-3,8-11`.
fn count_of(ranges: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::count_of;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_of("0"), Some(1));
        assert_eq!(count_of("0-1"), Some(2));
        assert_eq!(count_of("0-3,8-11,15"), Some(9));
        assert_eq!(count_of("0-65535"), None);
        assert_eq!(count_of("3-0"), None);
        assert_eq!(count_of(""), None);
    }
}
