//! What becomes of a store and of the device in it, for whoever watches them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::requests::{Counts, Requests};
use crate::states::State;
use crate::timer::Timer;

/// What is known of a store, and of the device in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The requests to the store.
    pub requests: Requests,
    /// How much content was in memory when a thread needed it.
    pub found_in_memory_bytes: u64,
    /// How much came from the cache on disk.
    pub found_on_disk_bytes: u64,
    /// How much came from the store.
    pub fetched_bytes: u64,
    /// How often the store began to refuse requests for now, or not to answer.
    pub outages: u64,
    /// How long that took in all.
    pub outage_time: Duration,
    /// How old the oldest write to the device is that the store lacks.
    pub undurable: Option<Duration>,
    /// The journal of the device, if it has one.
    pub journal: Option<JournalFacts>,
    /// The device, if it is open for writing.
    pub writing: Option<Writing>,
    /// The state that the device shows, if it is open for reading.
    pub reading: Option<State>,
    /// Whether a lease holds on what is read.
    pub has_lease: bool,
}

impl Facts {
    /// What is known of two stores together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests.and(other.requests),
            found_in_memory_bytes: self.found_in_memory_bytes + other.found_in_memory_bytes,
            found_on_disk_bytes: self.found_on_disk_bytes + other.found_on_disk_bytes,
            fetched_bytes: self.fetched_bytes + other.fetched_bytes,
            outages: self.outages + other.outages,
            outage_time: self.outage_time + other.outage_time,
            undurable: self.undurable.max(other.undurable),
            journal: self.journal.or(other.journal),
            writing: self.writing.or(other.writing),
            reading: self.reading.or(other.reading),
            has_lease: self.has_lease && other.has_lease,
        }
    }
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

/// What one store and the device in it have done: the layers of the store and the caches count it
/// here.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    requests: Counts,
    found_in_memory_bytes: AtomicU64,
    found_on_disk_bytes: AtomicU64,
    fetched_bytes: AtomicU64,
    outages: Mutex<Outages>,
    undurable: Mutex<Undurable>,
    /// With the time of the oldest write that it has alone.
    journal: Mutex<Option<(JournalFacts, Option<Duration>, Timer)>>,
    writing: Mutex<Option<Writing>>,
    reading: Mutex<Option<State>>,
    leased_until: Mutex<Option<(Timer, Duration)>>,
}

#[derive(Debug, Default)]
struct Outages {
    ended: u64,
    time: Duration,
    /// How many layers find the store failing at this time, and since when one has.
    now: Option<(u64, Instant)>,
}

impl Watch {
    /// What is known at this time.
    pub fn facts(&self) -> Facts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let noted = &*self.0;
        let outages = noted.outages.lock();
        let journal = noted.journal.lock();
        let in_journal =
            journal.as_ref().and_then(|(_, since, timer)| Some(timer.elapsed((*since)?)));
        let in_memory = noted.undurable.lock().oldest().map(|since| since.elapsed());
        let journal = journal.as_ref().map(|(journal, ..)| *journal);
        let lasting = outages.now.map(|(_, since)| since.elapsed());
        let leased_until = noted.leased_until.lock();
        Facts {
            requests: noted.requests.read(),
            found_in_memory_bytes: count(&noted.found_in_memory_bytes),
            found_on_disk_bytes: count(&noted.found_on_disk_bytes),
            fetched_bytes: count(&noted.fetched_bytes),
            outages: outages.ended + u64::from(lasting.is_some()),
            outage_time: outages.time + lasting.unwrap_or_default(),
            undurable: in_memory.into_iter().chain(in_journal).max(),
            journal,
            writing: *noted.writing.lock(),
            reading: *noted.reading.lock(),
            has_lease: leased_until.as_ref().is_some_and(|(timer, until)| timer.now() < *until),
        }
    }

    pub(crate) fn requests(&self) -> &Counts {
        &self.0.requests
    }

    pub(crate) fn note_found_in_memory(&self, bytes: u64) {
        self.0.found_in_memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_found_on_disk(&self, bytes: u64) {
        self.0.found_on_disk_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_fetched(&self, bytes: u64) {
        self.0.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The store has failed, and answered before.
    pub(crate) fn begin_outage(&self) {
        let mut outages = self.0.outages.lock();
        let (layers, since) = outages.now.unwrap_or((0, Instant::now()));
        outages.now = Some((layers + 1, since));
    }

    /// The store answers again.
    pub(crate) fn end_outage(&self) {
        let mut outages = self.0.outages.lock();
        match outages.now {
            Some((1, since)) => {
                outages.now = None;
                outages.ended += 1;
                outages.time += since.elapsed();
            }
            Some((layers, since)) => outages.now = Some((layers - 1, since)),
            None => {}
        }
    }

    /// Something was written that the store lacks.
    pub(crate) fn note_write(&self) {
        self.0.undurable.lock().written.get_or_insert_with(Instant::now);
    }

    /// Makes what was written durable by `flush`.
    pub(crate) fn flushing<T, E>(&self, flush: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let number = self.0.undurable.lock().begin();
        let result = flush();
        self.0.undurable.lock().end(number, result.is_ok());
        result
    }

    /// What the journal has, if there is one, and when the oldest write that it has alone was made.
    pub(crate) fn note_journal(&self, journal: Option<(JournalFacts, Option<Duration>, Timer)>) {
        *self.0.journal.lock() = journal;
    }

    /// The device that is open for writing has this state now.
    pub(crate) fn note_writing(&self, writing: Writing) {
        *self.0.writing.lock() = Some(writing);
    }

    /// The device that is open for reading shows this state.
    pub(crate) fn note_reading(&self, state: State) {
        *self.0.reading.lock() = Some(state);
    }

    /// A lease holds until then, if any does.
    pub(crate) fn note_lease(&self, until: Option<(Timer, Duration)>) {
        *self.0.leased_until.lock() = until;
    }
}

/// What a store lacks.
#[derive(Debug, Default)]
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
        let mut undurable = Undurable::default();
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
