//! What this process has to do with stores: for whoever watches it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::states::State;
use crate::store::{Requests, requests_of_this_process};
use crate::timer::Timer;

/// The devices of objects and the stores of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The requests to all stores.
    pub requests: Requests,
    /// How much content was in memory when a thread needed it.
    pub found_in_memory_bytes: u64,
    /// How much came from the cache on disk.
    pub found_on_disk_bytes: u64,
    /// How much came from the store.
    pub fetched_bytes: u64,
    /// How often stores began to refuse requests for now, or not to answer.
    pub outages: u64,
    /// How long that took in all.
    pub outage_time: Duration,
    /// How old the oldest write to a device is that its store lacks.
    pub undurable: Option<Duration>,
    /// The journal of the device that was opened for writing last, if it has one.
    pub journal: Option<JournalFacts>,
    /// The device that was opened for writing last.
    pub writing: Option<Writing>,
    /// The state that a device shows which was opened for reading last.
    pub reading: Option<State>,
    /// Whether a lease holds on what is read.
    pub has_lease: bool,
}

/// A journal on a disk of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFacts {
    /// How much it has that the store may lack, in bytes.
    pub bytes: u64,
    /// Its disk failed, and flushes wait for the store.
    pub is_given_up: bool,
}

/// A device that is open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// How often it has been opened for writing.
    pub epoch: u32,
    /// Its state.
    pub state: State,
    /// How many states were kept at its last flush.
    pub kept_states: u64,
}

static FOUND_IN_MEMORY_BYTES: AtomicU64 = AtomicU64::new(0);
static FOUND_ON_DISK_BYTES: AtomicU64 = AtomicU64::new(0);
static FETCHED_BYTES: AtomicU64 = AtomicU64::new(0);
static OUTAGES: Mutex<Outages> = Mutex::new(Outages { ended: 0, time: Duration::ZERO, now: None });
static UNDURABLE: Mutex<Undurable> =
    Mutex::new(Undurable { written: None, flushing: BTreeMap::new(), flushes: 0 });
/// With the time of the oldest write that it has alone.
static JOURNAL: Mutex<Option<(JournalFacts, Option<Duration>, Timer)>> = Mutex::new(None);
static WRITING: Mutex<Option<Writing>> = Mutex::new(None);

static READING: Mutex<Option<State>> = Mutex::new(None);
static LEASED_UNTIL: Mutex<Option<(Timer, Duration)>> = Mutex::new(None);

#[derive(Debug)]
struct Outages {
    ended: u64,
    time: Duration,
    /// The stores that do not answer at this time, and since when one has not.
    now: Option<(u64, Instant)>,
}

/// The facts of this process.
pub fn facts_of_this_process() -> Facts {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let outages = OUTAGES.lock();
    let journal = JOURNAL.lock();
    let in_journal = journal.as_ref().and_then(|(_, since, timer)| Some(timer.elapsed((*since)?)));
    let in_memory = UNDURABLE.lock().oldest().map(|since| since.elapsed());
    let journal = journal.as_ref().map(|(journal, ..)| *journal);
    let lasting = outages.now.map(|(_, since)| since.elapsed());
    Facts {
        requests: requests_of_this_process(),
        found_in_memory_bytes: count(&FOUND_IN_MEMORY_BYTES),
        found_on_disk_bytes: count(&FOUND_ON_DISK_BYTES),
        fetched_bytes: count(&FETCHED_BYTES),
        outages: outages.ended + u64::from(lasting.is_some()),
        outage_time: outages.time + lasting.unwrap_or_default(),
        undurable: in_memory.into_iter().chain(in_journal).max(),
        journal,
        writing: *WRITING.lock(),
        reading: *READING.lock(),
        has_lease: LEASED_UNTIL.lock().as_ref().is_some_and(|(timer, until)| timer.now() < *until),
    }
}

pub(crate) fn note_found_in_memory(bytes: u64) {
    FOUND_IN_MEMORY_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn note_found_on_disk(bytes: u64) {
    FOUND_ON_DISK_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn note_fetched(bytes: u64) {
    FETCHED_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// A store has failed that answered before.
pub(crate) fn begin_outage() {
    let mut outages = OUTAGES.lock();
    let (stores, since) = outages.now.unwrap_or((0, Instant::now()));
    outages.now = Some((stores + 1, since));
}

/// A store answers again.
pub(crate) fn end_outage() {
    let mut outages = OUTAGES.lock();
    match outages.now {
        Some((1, since)) => {
            outages.now = None;
            outages.ended += 1;
            outages.time += since.elapsed();
        }
        Some((stores, since)) => outages.now = Some((stores - 1, since)),
        None => {}
    }
}

/// Something was written that the store lacks.
pub(crate) fn note_write() {
    UNDURABLE.lock().written.get_or_insert_with(Instant::now);
}

/// Makes what was written durable by `flush`.
pub(crate) fn flushing<T, E>(flush: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let number = UNDURABLE.lock().begin();
    let result = flush();
    UNDURABLE.lock().end(number, result.is_ok());
    result
}

/// What a journal has, if there is one, and when the oldest write that it has alone was made.
pub(crate) fn note_journal(journal: Option<(JournalFacts, Option<Duration>, Timer)>) {
    *JOURNAL.lock() = journal;
}

/// A device has this state now.
pub(crate) fn note_writing(writing: Writing) {
    *WRITING.lock() = Some(writing);
}

/// A device that is open for reading shows this state.
pub(crate) fn note_reading(state: State) {
    *READING.lock() = Some(state);
}

/// A lease holds until then, if any does.
pub(crate) fn note_lease(until: Option<(Timer, Duration)>) {
    *LEASED_UNTIL.lock() = until;
}

/// What stores lack.
#[derive(Debug)]
struct Undurable {
    /// When the oldest write was made that no flush has begun to make durable.
    written: Option<Instant>,
    /// The same for flushes that have not ended, by their numbers.
    flushing: BTreeMap<u64, Instant>,
    flushes: u64,
}

impl Undurable {
    fn oldest(&self) -> Option<Instant> {
        self.flushing.values().copied().chain(self.written).min()
    }

    fn begin(&mut self) -> u64 {
        self.flushes += 1;
        let written = self.written.take();
        self.flushing.extend(written.map(|since| (self.flushes, since)));
        self.flushes
    }

    fn end(&mut self, flush: u64, is_durable: bool) {
        let flushed = self.flushing.remove(&flush);
        if !is_durable {
            self.written = self.written.into_iter().chain(flushed).min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_old_until_its_flush_ends() {
        let mut undurable = Undurable { written: None, flushing: BTreeMap::new(), flushes: 0 };
        let began = Instant::now();
        let time = |seconds| began + Duration::from_secs(seconds);
        let first = undurable.begin();
        undurable.end(first, true);
        assert_eq!(undurable.oldest(), None);
        undurable.written = Some(time(1));
        let first = undurable.begin();
        undurable.written = Some(time(2));
        assert_eq!(undurable.oldest(), Some(time(1)));
        let second = undurable.begin();
        undurable.end(second, true);
        assert_eq!(undurable.oldest(), Some(time(1)));
        undurable.end(first, false);
        assert_eq!(undurable.oldest(), Some(time(1)), "it is not durable");
        let third = undurable.begin();
        undurable.end(third, true);
        assert_eq!(undurable.oldest(), None);
    }
}
