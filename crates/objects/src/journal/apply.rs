//! The thread that gives the store what is in the journal.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_device::Device;

use super::kept::failed;
use super::record::{Kind, Record};
use super::way::Shared;

/// So much goes to the store together, in bytes, also if somebody waits.
const MOST_TOGETHER: u64 = 8 << 20;

/// The thread, until it has done its work.
#[derive(Debug)]
pub(super) struct Applying(Option<JoinHandle<()>>);

impl Applying {
    pub(super) fn begin(shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        let apply = move || {
            if let Err(why) = Applier::new(&shared).run() {
                tracing::error!(
                    "{why}; the journal {} keeps what fsync made durable and the store lacks",
                    shared.name
                );
                shared.fail(why);
            }
        };
        let thread = thread::Builder::new().name("larder-journal".to_owned()).spawn(apply);
        Self(Some(thread.expect("the system starts threads")))
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        // One that panicked has been reported.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

struct Applier<'a> {
    shared: &'a Shared,
    /// Where the next record is, and its chain.
    at: (u64, u64),
    /// The end of the last flush that was passed, if the store lacks it, and since when.
    passed: Option<(u64, Duration)>,
    /// How much the device of objects got that the store lacks.
    bytes: u64,
}

enum Step {
    Record,
    Flush,
    End,
}

impl<'a> Applier<'a> {
    fn new(shared: &'a Shared) -> Self {
        let header = shared.log.header();
        Self { shared, at: (header.start, header.chain), passed: None, bytes: 0 }
    }

    fn run(&mut self) -> Result<(), String> {
        loop {
            match self.next() {
                Step::Record => self.apply()?,
                Step::Flush => self.flush()?,
                Step::End => return Ok(()),
            }
        }
    }

    /// What is to be done next. The device of objects goes on from a flush without one of its own
    /// only towards a later flush.
    fn next(&self) -> Step {
        let mut ends = self.shared.ends.lock();
        loop {
            if ends.failure.is_some() {
                return Step::End;
            }
            let here = self.at.0;
            match self.passed {
                Some((passed, since)) if passed == here => {
                    let age = self.shared.timer.elapsed(since);
                    let (more, hurry) = (ends.durable > here, ends.hurried > 0 || ends.is_closing);
                    let is_much = self.bytes >= MOST_TOGETHER;
                    if age >= self.shared.pause || is_much || (hurry && !more) {
                        return Step::Flush;
                    }
                    if more {
                        return Step::Record;
                    }
                    let left = self.shared.pause.saturating_sub(age);
                    self.shared.timer.wait(&self.shared.changed, &mut ends, left);
                }
                _ if here < ends.durable => return Step::Record,
                _ if ends.is_closing => return Step::End,
                _ => self.shared.changed.wait(&mut ends),
            }
        }
    }

    fn apply(&mut self) -> Result<(), String> {
        let shared = self.shared;
        let (position, chain) = self.at;
        let unreadable =
            |why: &str| format!("{}: what is in it cannot be read any more: {why}", shared.name);
        let found = shared.log.record(position).and_then(|found| match found {
            Some((record, next)) if record.chain == chain => {
                Ok(shared.log.content(&record)?.map(|content| (record, content, next)))
            }
            _ => Ok(None),
        });
        let found = found.map_err(|error| failed(&shared.name, &error).to_string())?;
        let (record, content, next) =
            found.ok_or_else(|| unreadable("the checksum of a record is wrong"))?;
        let Record { kind, start, len, .. } = record;
        shared.inner.note_journaled(next);
        let applied = match kind {
            Kind::Write => shared.inner.write_at(&content, start),
            Kind::Discard => shared.inner.discard(start, len),
            Kind::Flush | Kind::Rest => Ok(()),
        };
        applied.map_err(|error| error.to_string())?;
        self.at = (record.end(), next);
        self.bytes += record.size();
        if kind == Kind::Flush {
            let since = self.passed.map_or_else(|| shared.timer.now(), |(_, since)| since);
            self.passed = Some((record.end(), since));
        }
        let mut ends = shared.ends.lock();
        shared.map.remove(&record);
        ends.applied = record.end();
        drop(ends);
        shared.changed.notify_all();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let shared = self.shared;
        shared.inner.flush().map_err(|error| error.to_string())?;
        (self.passed, self.bytes) = (None, 0);
        let ((start, chain), state) = (self.at, shared.inner.state_number());
        let changed = shared.log.change(|header| {
            (header.start, header.chain, header.state) = (start, chain, state);
        });
        shared.note_stored(start, changed);
        Ok(())
    }
}
