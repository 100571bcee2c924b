//! Where writes and flushes go: into the journal, or through to the device of objects.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use larder_device::{Device, DeviceError, Operation};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

use super::header::Header;
use super::kept::{Kept, failed};
use super::log::Log;
use super::map::Map;
use super::record::{Kind, MOST_CONTENT, Record, UNIT, checksum, size};
use crate::device::ObjectDevice;
use crate::error::ObjectsError;
use crate::timer::Timer;
use crate::watch::JournalFacts;

/// How long the store is tried for when the device is closed: the journal keeps what it lacks.
const CLOSING: Duration = Duration::from_secs(5);

/// The ages of so many flushes are known apart.
const MOST_AGES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Into the journal.
    Journal,
    /// Through, up to the next flush: more was written since the last one than the journal takes.
    Through,
    /// Through for good: the journal's disk failed.
    Without,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) inner: ObjectDevice,
    pub(super) log: Log,
    pub(super) map: Map,
    pub(super) pause: Duration,
    pub(super) timer: Timer,
    pub(super) name: String,
    way: RwLock<Way>,
    /// Up to where the disk has flushed its records. Locked while it does so.
    syncing: Mutex<u64>,
    pub(super) ends: Mutex<Ends>,
    pub(super) changed: Condvar,
    /// The same as [`Ends::start`], for readers.
    start: AtomicU64,
    /// How many threads wait for the store.
    waiting: AtomicUsize,
}

/// Positions in the journal. Each is at least as large as the one before.
#[derive(Debug)]
pub(super) struct Ends {
    /// Records before it have given up their place.
    pub(super) start: u64,
    /// The end of the last flush that the store has.
    pub(super) stored: u64,
    /// The device of objects has the records before it.
    pub(super) applied: u64,
    /// The end of the last flush that is durable in the journal: the device of objects gets records
    /// up to there. Without a journal it gets all.
    pub(super) durable: u64,
    /// The end of the last flush.
    flushed: u64,
    end: u64,
    chain: u64,
    /// Ends of flushes, and when the first write before each was made.
    ages: VecDeque<(u64, Duration)>,
    /// When the first write after the last flush was made.
    written: Option<Duration>,
    /// How many threads wait for the other one.
    pub(super) hurried: usize,
    pub(super) is_closing: bool,
    /// Why the disk cannot be used any more.
    broken: Option<String>,
    /// Why the device cannot be used any more.
    pub(super) failure: Option<String>,
}

/// A change that the journal has no room for at this time, or that its disk did not take.
struct NoRoom;

impl Shared {
    pub(super) fn new(
        inner: ObjectDevice,
        kept: Kept,
        pause: Duration,
    ) -> Result<Self, ObjectsError> {
        let name = kept.name().to_owned();
        let header = kept.log.header();
        let Kept { log, records, end, chain, .. } = kept;
        let (map, timer) = (Map::new(), inner.timer());
        for record in &records {
            map.add(record);
        }
        let ages = (end > header.start).then(|| (end, timer.now()));
        let ends = Ends {
            start: header.start,
            stored: header.start,
            applied: header.start,
            durable: end,
            flushed: end,
            end,
            chain,
            ages: ages.into_iter().collect(),
            written: None,
            hurried: 0,
            is_closing: false,
            broken: None,
            failure: None,
        };
        if records.is_empty() {
            // The state that the next records change.
            let state = inner.state_number();
            let change = log.change(|header| header.state = state);
            change.map_err(|error| failed(&name, &error))?;
        }
        let shared = Self {
            inner,
            log,
            map,
            pause,
            timer,
            name,
            way: RwLock::new(Way::Journal),
            syncing: Mutex::new(end),
            start: AtomicU64::new(header.start),
            ends: Mutex::new(ends),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        };
        shared.tell(&shared.ends.lock(), false);
        Ok(shared)
    }

    /// Whether a thread waits for the store.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        while !self.try_read(buf, offset)? {}
        Ok(())
    }

    /// Returns whether all that it read was still there afterwards.
    fn try_read(&self, buf: &mut [u8], offset: u64) -> Result<bool, DeviceError> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        for (range, newer) in self.map.within(offset..end) {
            let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
            if at < range.start {
                self.inner.read_at(&mut buf[part(at, range.start)], at)?;
            }
            let here = &mut buf[part(range.start, range.end)];
            match newer.at {
                None => here.fill(0),
                Some(position) => {
                    let read = self.log.read(here, position);
                    if position < self.start.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    read.map_err(|error| self.io(Operation::Read, failed(&self.name, &error)))?;
                }
            }
            at = range.end;
        }
        if at < end {
            self.inner.read_at(&mut buf[(at - offset) as usize..], at)?;
        }
        Ok(true)
    }

    pub(super) fn write(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let mut at = offset;
        let mut parts: Vec<&[u8]> = bufs.iter().map(|buf| &**buf).collect();
        parts.retain(|part| !part.is_empty());
        while !parts.is_empty() {
            let mut content = Vec::new();
            let mut room = MOST_CONTENT;
            while let Some(part) = parts.first_mut().filter(|_| room > 0) {
                let (here, rest) = part.split_at(part.len().min(room));
                content.push(IoSlice::new(here));
                room -= here.len();
                *part = rest;
                if rest.is_empty() {
                    parts.remove(0);
                }
            }
            let len = (MOST_CONTENT - room) as u64;
            let sum = checksum(&content);
            let through = || self.inner.write_vectored_at(&content, at);
            self.change(Kind::Write, at..at + len, sum, &content, through)?;
            at += len;
        }
        Ok(())
    }

    pub(super) fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        if len_bytes == 0 {
            return Ok(());
        }
        let through = || self.inner.discard(offset, len_bytes);
        self.change(Kind::Discard, offset..offset + len_bytes, 0, &[], through)
    }

    /// Puts a change into the journal, or takes the way `through`.
    fn change(
        &self,
        kind: Kind,
        range: std::ops::Range<u64>,
        sum: u64,
        content: &[IoSlice<'_>],
        through: impl Fn() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        loop {
            let way = self.way.read();
            if *way != Way::Journal {
                return through();
            }
            let mut ends = self.ends.lock();
            self.check(&ends)?;
            if self.append(&mut ends, kind, range.clone(), sum, content).is_ok() {
                ends.written.get_or_insert_with(|| self.timer.now());
                self.tell(&ends, false);
                self.changed.notify_all();
                return Ok(());
            }
            drop(ends);
            self.make_room(way)?;
        }
    }

    /// Makes what was written durable.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        loop {
            let way = self.way.read();
            match *way {
                Way::Without => return self.waiting(|| self.inner.flush()),
                Way::Through => {
                    drop(way);
                    if self.flush_through()? {
                        return Ok(());
                    }
                    continue;
                }
                Way::Journal => {}
            }
            let mut ends = self.ends.lock();
            self.check(&ends)?;
            if ends.end != ends.flushed
                && self.append(&mut ends, Kind::Flush, 0..0, 0, &[]).is_err()
            {
                drop(ends);
                self.make_room(way)?;
                continue;
            }
            let end = ends.flushed;
            drop(ends);
            drop(way);
            match self.sync(end) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.ends.lock().broken.get_or_insert(error.to_string());
                    self.leave_journal(Way::Without)?;
                }
            }
        }
    }

    /// Makes the records before `end` durable.
    fn sync(&self, end: u64) -> Result<(), DeviceError> {
        let mut synced = self.syncing.lock();
        if *synced < end {
            let Ends { end: written, flushed, .. } = *self.ends.lock();
            self.log.sync()?;
            *synced = written;
            let mut ends = self.ends.lock();
            ends.durable = ends.durable.max(flushed);
            drop(ends);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Flushes what went through, and takes the journal again. Returns whether it did.
    fn flush_through(&self) -> Result<bool, DeviceError> {
        // No thread may write meanwhile: the journal would lack it.
        let mut way = self.way.write();
        if *way != Way::Through {
            return Ok(false);
        }
        self.waiting(|| self.inner.flush())?;
        let state = self.inner.state_number();
        match self.log.change(|header| header.state = state) {
            Ok(()) => *way = Way::Journal,
            Err(error) => {
                self.ends.lock().broken.get_or_insert(error.to_string());
                *way = self.give_up()?;
            }
        }
        Ok(true)
    }

    /// Adds a record.
    fn append(
        &self,
        ends: &mut Ends,
        kind: Kind,
        range: std::ops::Range<u64>,
        content: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<(), NoRoom> {
        let len = range.end - range.start;
        let needed = if kind == Kind::Write { size(len) } else { UNIT };
        let left = self.log.left_at(ends.end);
        let rest = if needed > left { left } else { 0 };
        if ends.broken.is_some() || ends.end + rest + needed > ends.start + self.log.area() {
            return Err(NoRoom);
        }
        let Ends { chain, durable, end: position, .. } = *ends;
        let mut record =
            Record { position, chain, kind, start: range.start, len, durable, content };
        if rest > 0 {
            let padding = Record { kind: Kind::Rest, start: 0, len: rest, content: 0, ..record };
            record.chain = self.put(ends, &padding, &[])?;
            record.position = ends.end;
        }
        self.put(ends, &record, parts)?;
        if kind == Kind::Flush {
            ends.flushed = ends.end;
            ends.note_flush();
        }
        self.map.add(&record);
        Ok(())
    }

    fn put(&self, ends: &mut Ends, record: &Record, parts: &[IoSlice<'_>]) -> Result<u64, NoRoom> {
        match self.log.write(record, parts) {
            Ok(chain) => {
                (ends.end, ends.chain) = (record.end(), chain);
                Ok(chain)
            }
            Err(error) => {
                ends.broken = Some(error.to_string());
                Err(NoRoom)
            }
        }
    }

    /// Waits for room in the journal, or leaves it.
    fn make_room(&self, way: RwLockReadGuard<'_, Way>) -> Result<(), DeviceError> {
        drop(way);
        let mut ends = self.ends.lock();
        let before = ends.start;
        ends.hurried += 1;
        self.changed.notify_all();
        let waited = self.waiting(|| {
            while ends.broken.is_none() && ends.start == before && !ends.is_stored() {
                self.check(&ends)?;
                self.changed.wait(&mut ends);
            }
            Ok(())
        });
        ends.hurried -= 1;
        waited?;
        let leave = match &ends.broken {
            Some(_) => Some(Way::Without),
            // Nothing will give up its place.
            None if ends.start == before => Some(Way::Through),
            None => None,
        };
        drop(ends);
        leave.map_or(Ok(()), |way| self.leave_journal(way))
    }

    /// Takes the way `to`: first the store gets all that is durable in the journal, then the header or
    /// the manifest says that there is nothing more in it, and then the device of objects gets the
    /// rest.
    fn leave_journal(&self, to: Way) -> Result<(), DeviceError> {
        let mut way = self.way.write();
        if *way != Way::Journal {
            return Ok(());
        }
        let flushed = self.ends.lock().flushed;
        if to == Way::Through && self.sync(flushed).is_ok() {
            self.drain(|ends| ends.stored >= flushed)?;
            let mut ends = self.ends.lock();
            if ends.start == flushed {
                ends.durable = ends.end;
                drop(ends);
                self.drain(|ends| ends.applied == ends.durable)?;
                *way = self.empty()?;
                return Ok(());
            }
        }
        self.drain(|ends| ends.stored >= ends.durable)?;
        *way = self.give_up()?;
        Ok(())
    }

    /// Says in the header that there are no records.
    fn empty(&self) -> Result<Way, DeviceError> {
        let Ends { end, chain, .. } = *self.ends.lock();
        let state = self.inner.state_number();
        let change = |header: &mut Header| {
            (header.start, header.chain, header.state) = (end, chain, state);
        };
        if let Err(error) = self.log.change(change) {
            self.ends.lock().broken.get_or_insert(error.to_string());
            return self.give_up();
        }
        let mut ends = self.ends.lock();
        (ends.start, ends.stored, ends.flushed) = (end, end, end);
        self.start.store(end, Ordering::Release);
        Ok(Way::Through)
    }

    /// Says in the store that there is no journal any more, since its disk cannot say so.
    fn give_up(&self) -> Result<Way, DeviceError> {
        let why = self.ends.lock().broken.clone().unwrap_or_default();
        tracing::warn!(
            "{}: the journal {} is used no more, and fsync waits for the store: {why}",
            self.inner.name(),
            self.name
        );
        let given_up = self.waiting(|| self.inner.give_up_journal());
        given_up.map_err(|error| self.io(Operation::Flush, error))?;
        let mut ends = self.ends.lock();
        ends.durable = ends.end;
        self.tell(&ends, true);
        drop(ends);
        self.drain(|ends| ends.applied == ends.durable)?;
        Ok(Way::Without)
    }

    /// Waits until the thread has done its work.
    fn drain(&self, is_drained: impl Fn(&Ends) -> bool) -> Result<(), DeviceError> {
        self.waiting(|| {
            let mut ends = self.ends.lock();
            ends.hurried += 1;
            self.changed.notify_all();
            while ends.failure.is_none() && !is_drained(&ends) {
                self.changed.wait(&mut ends);
            }
            ends.hurried -= 1;
            self.check(&ends)
        })
    }

    /// Waits until the store has all that was flushed.
    pub(super) fn wait_for_store(&self) -> Result<(), DeviceError> {
        let flushed = self.ends.lock().flushed;
        self.drain(|ends| ends.stored >= flushed)
    }

    /// The store has all flushes before `stored`, and the header says so unless it could not.
    pub(super) fn note_stored(&self, stored: u64, header: Result<(), DeviceError>) {
        let mut ends = self.ends.lock();
        ends.stored = stored;
        while ends.ages.front().is_some_and(|(end, _)| *end <= stored) {
            ends.ages.pop_front();
        }
        match header {
            Ok(()) => {
                ends.start = stored;
                self.start.store(stored, Ordering::Release);
            }
            Err(error) => {
                ends.broken.get_or_insert(error.to_string());
            }
        }
        self.tell(&ends, false);
        drop(ends);
        self.changed.notify_all();
    }

    /// No flush succeeds any more.
    pub(super) fn fail(&self, why: String) {
        let mut ends = self.ends.lock();
        ends.failure.get_or_insert(why);
        drop(ends);
        self.changed.notify_all();
    }

    fn check(&self, ends: &Ends) -> Result<(), DeviceError> {
        match &ends.failure {
            None => Ok(()),
            Some(why) => {
                let error = ObjectsError::Failed { why: why.clone() };
                Err(self.io(Operation::Flush, error))
            }
        }
    }

    fn io(&self, operation: Operation, error: ObjectsError) -> DeviceError {
        DeviceError::io(&self.inner, operation, 0, 0, io::Error::from(error))
    }

    fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// The device is not used any more: the thread ends when it has done its work.
    pub(super) fn close(&self) {
        self.ends.lock().is_closing = true;
        self.changed.notify_all();
        if *self.way.read() == Way::Journal {
            // What the store lacks stays here.
            self.inner.have_patience_for(CLOSING);
        }
    }

    /// Gives the space back if the store has everything, and says so if not.
    pub(super) fn leave(&self) {
        let ends = self.ends.lock();
        if ends.stored < ends.flushed {
            tracing::warn!(
                "{}: the journal {} keeps {} bytes that the store may lack; mount it again on this \
                 machine",
                self.inner.name(),
                self.name,
                ends.flushed - ends.stored
            );
        } else if ends.start == ends.stored && ends.broken.is_none() && ends.failure.is_none() {
            // Only space is lost if it fails.
            let _ = self.log.give_back();
        }
        self.inner.watch().note_journal(None);
    }

    fn tell(&self, ends: &Ends, is_given_up: bool) {
        let since = ends.ages.front().map(|(_, since)| *since).or(ends.written);
        let bytes = ends.end - ends.stored;
        let facts = JournalFacts { bytes, is_given_up };
        self.inner.watch().note_journal(Some((facts, since, self.timer.clone())));
    }
}

impl Ends {
    /// The store has all flushes: no record will give up its place.
    fn is_stored(&self) -> bool {
        self.start == self.flushed
    }

    fn note_flush(&mut self) {
        let Some(since) = self.written.take() else { return };
        let is_full = self.ages.len() >= MOST_AGES;
        match self.ages.back_mut() {
            Some((end, _)) if is_full => *end = self.end,
            _ => self.ages.push_back((self.end, since)),
        }
    }
}
