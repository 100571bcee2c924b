//! The device.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use larder_device::{Device, DeviceError, Operation, Trouble, check_call};
use larder_platform::errno::in_words;

use crate::ahead::Ahead;
use crate::cache::{Cache, DiskCache};
use crate::claim::Claim;
use crate::content::Content;
use crate::error::ObjectsError;
use crate::garbage::{self, Collected};
use crate::head::{self, read_manifest};
use crate::hold;
use crate::id::ObjectId;
use crate::state_name::StateName;

use crate::journal::warn_of_what_is_left;
use crate::manifest::{Manifest, Mark};
use crate::options::Options;
use crate::ownership::{Right, begin_with_a_copy, take_over, this_host, this_process};
use crate::past::Past;
use crate::pool::Pool;
use crate::probe;
use crate::reading::{Read, Reading};
use crate::requests::Requests;
use crate::seen::Seen;
use crate::states::{Policy, State};
use crate::store::{Based, Counting, Problem, Store, StoreError};
use crate::tend::Tending;
use crate::timer::Timer;
use crate::watch::{Facts, Watch};
use crate::writer::Writer;

/// Threads that fetch content which will be read soon.
const FETCHING_THREADS: usize = 8;

/// More requests than that wait for no thread: the reader is faster.
const MOST_WAITING: usize = 64;

/// How much of the device a search for content looks at in one step.
const LOOKED_AT_BYTES: u64 = 1 << 30;

/// How long the end of a writer is waited for that has closed the device already.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// A device whose content lies in objects.
pub struct ObjectDevice {
    name: String,
    len_bytes: u64,
    uuid: [u8; 16],
    /// The epoch and the state at the opening.
    opened: (u32, State),
    /// It shows the newest state there was, and no kept one.
    is_newest: bool,
    read: Option<Read>,
    cache_bytes: u64,
    // Ends before `content`, which its jobs use.
    fetching: Pool,
    ahead: Ahead,
    // Ends before the writer closes the device.
    tending: Option<Tending>,
    writer: Option<Arc<Writer>>,
    _claim: Option<Claim>,
    content: Arc<Content>,
    requests: Arc<Counting<Arc<dyn Store>>>,
    watch: Watch,
    seen: Option<Seen>,
}

/// A device in use, for whoever watches it or wants space back. It is what
/// [`particulars`](Device::particulars) gives.
#[derive(Debug)]
pub struct InUse {
    watch: Watch,
    writer: Option<Arc<Writer>>,
    content: Arc<Content>,
}

impl InUse {
    /// What is known of it.
    pub fn facts(&self) -> Facts {
        self.watch.facts()
    }

    /// As [`ObjectDevice::collect_garbage`]; `None` for a device that is open for reading.
    ///
    /// # Errors
    /// Those of [`ObjectDevice::collect_garbage`].
    pub fn collect_garbage(&self) -> Result<Option<Collected>, ObjectsError> {
        let Some(writer) = &self.writer else { return Ok(None) };
        garbage::collect(writer, &self.content, &mut |_, _| ()).map(Some)
    }
}

impl ObjectDevice {
    /// Makes a device of zeros.
    ///
    /// # Errors
    /// [`ObjectsError::Exists`], [`ObjectsError::Lost`], [`ObjectsError::OnlyForReading`],
    /// [`ObjectsError::Unconditional`], and those of the store.
    pub fn create(
        store: &dyn Store,
        len_bytes: u64,
        policy: Policy,
        delete_after: u64,
    ) -> Result<(), ObjectsError> {
        let now = probe::conditions(store)?.now();
        let mut writer = this_process(now);
        writer.is_done = true;
        let state = State { number: 0, time: now };
        let manifest = Manifest {
            uuid: uuid::Uuid::new_v4().into_bytes(),
            number: 0,
            len_bytes,
            bases: Vec::new(),
            epoch: 0,
            next_flush: ObjectId::first_flush(0),
            writer,
            policy,
            delete_after,
            earlier: Vec::new(),
            root: None,
            tail: Vec::new(),
            marks: vec![Mark { state, segments: 0 }],
        };
        head::create_first(store, &manifest)
    }

    /// Opens a device for reading, at its last state or at the kept one that `state` names.
    ///
    /// # Errors
    /// [`ObjectsError::Missing`], [`ObjectsError::NoSuchState`], and those of the store.
    pub fn open_read_only(
        store: Arc<dyn Store>,
        state: Option<&StateName>,
        options: &Options,
    ) -> Result<Self, ObjectsError> {
        let watch = store.watch().unwrap_or_default();
        let requests = Arc::new(Counting::new(store));
        let store: Arc<dyn Store> = Arc::clone(&requests) as _;
        let choose = |manifest: &Manifest| match state {
            None => Ok(manifest.state()),
            Some(name) => head::find_state(&*store, manifest, name),
        };
        let (manifest, opened, read) = if options.lease {
            let reading = Reading::begin(&store);
            let choose = |manifest: &Manifest| choose(manifest).map(|state| (state, state.number));
            let (manifest, opened, since) = reading.look(choose)?;
            let read = reading.note(opened.number, &manifest, since);
            (manifest, opened, Some(read))
        } else {
            let manifest = head::read(&*store)?;
            let opened = choose(&manifest)?;
            (manifest, opened, None)
        };
        if state.is_none() {
            warn_of_what_is_left(&*store, &manifest, &this_host());
        }
        let seen = Seen::compared(options, &*store, &manifest);
        let store = with_bases(store, &manifest);
        watch.note_reading(opened);
        let cache = Arc::new(cache(&manifest, options, &watch));
        let content = load(&store, &manifest, opened, cache)?;
        Ok(Self {
            name: store.name().to_owned(),
            len_bytes: manifest.len_bytes,
            uuid: manifest.uuid,
            opened: (manifest.epoch, opened),
            is_newest: state.is_none(),
            read,
            cache_bytes: options.cache_bytes,
            fetching: Pool::new(FETCHING_THREADS),
            ahead: Ahead::new(options.cache_bytes / 2),
            tending: None,
            writer: None,
            _claim: None,
            content: Arc::new(content),
            requests,
            watch,
            seen,
        })
    }

    /// A device for reading with the newest state, if that is another one than this device shows.
    /// Both share what is in memory. `None` for one that is open for writing, or shows a kept state.
    ///
    /// # Errors
    /// [`ObjectsError::Replaced`], and those of the store.
    pub fn newest(&self) -> Result<Option<Self>, ObjectsError> {
        if self.writer.is_some() || !self.is_newest {
            return Ok(None);
        }
        let store: Arc<dyn Store> = Arc::clone(&self.requests) as _;
        let choose = |manifest: &Manifest| {
            if manifest.uuid != self.uuid {
                return Err(ObjectsError::Replaced { store: self.name.clone() });
            }
            let state = manifest.state();
            Ok(((manifest.epoch, state), state.number))
        };
        let reading = self.read.as_ref().map(Read::reading);
        let (manifest, opened, since) = match reading {
            Some(reading) => {
                reading.follow();
                reading.look(choose)?
            }
            None => {
                let manifest = head::read(&*store)?;
                let (opened, _) = choose(&manifest)?;
                (manifest, opened, Duration::ZERO)
            }
        };
        if opened == self.opened {
            return Ok(None);
        }
        let read = reading.map(|reading| reading.note(opened.1.number, &manifest, since));
        if let Some(seen) = &self.seen {
            seen.compare(&*store, &manifest);
        }
        let store = with_bases(store, &manifest);
        let before = Arc::clone(&*self.content.checkpoint.read());
        let cache = Arc::clone(&self.content.cache);
        let content = if before.at == manifest.root {
            Content::with(&store, before, cache, &manifest.tail)
        } else {
            load(&store, &manifest, opened.1, cache)?
        };
        self.watch.note_reading(opened.1);
        Ok(Some(Self {
            name: self.name.clone(),
            len_bytes: manifest.len_bytes,
            uuid: self.uuid,
            opened,
            is_newest: true,
            read,
            cache_bytes: self.cache_bytes,
            fetching: Pool::new(FETCHING_THREADS),
            ahead: Ahead::new(self.cache_bytes / 2),
            tending: None,
            writer: None,
            _claim: None,
            content: Arc::new(content),
            requests: Arc::clone(&self.requests),
            watch: self.watch.clone(),
            seen: self.seen.clone(),
        }))
    }

    /// Opens a device for writing, and thereby ends the writing of any other machine.
    ///
    /// # Errors
    /// [`ObjectsError::InUse`] if a process of this machine has opened the device for writing,
    /// [`ObjectsError::Missing`], [`ObjectsError::Unconditional`], and those of the store.
    pub fn open(store: Arc<dyn Store>, options: &Options) -> Result<Self, ObjectsError> {
        Self::open_by(store, options, Right::ToAny)
    }

    pub(crate) fn open_by(
        store: Arc<dyn Store>,
        options: &Options,
        right: Right<'_>,
    ) -> Result<Self, ObjectsError> {
        let (mut manifest, _) = read_manifest(&*store)?;
        // A writer closes the device a moment before it ends.
        let patience = if manifest.writer.is_done { PATIENCE } else { Duration::ZERO };
        let timer = store.timer();
        let asked = timer.now();
        loop {
            let claim = Claim::take(&manifest.uuid).map_err(|error| ObjectsError::Address {
                text: store.name().to_owned(),
                why: format!("this machine cannot exclude other writers: {}", in_words(&error)),
            })?;
            if claim.is_some() {
                return Self::open_with(store, options, claim, right);
            }
            if timer.elapsed(asked) >= patience {
                break;
            }
            timer.sleep(PAUSE);
        }
        if manifest.writer.is_done {
            // Another one may have come first.
            (manifest, _) = read_manifest(&*store)?;
        }
        let (store, by) = (store.name().to_owned(), manifest.writer.to_string());
        Err(ObjectsError::InUse { store, by })
    }

    /// Opens a device for writing that no writer has open, as far as the manifest knows.
    ///
    /// # Errors
    /// [`ObjectsError::NotClosed`] if one has, or ended without closing it; and as
    /// [`open`](Self::open).
    pub fn open_closed(store: Arc<dyn Store>, options: &Options) -> Result<Self, ObjectsError> {
        Self::open_by(store, options, Right::ToClosed)
    }

    /// Makes the next lease, as a thread of the device does now and then. For tests.
    #[doc(hidden)]
    pub fn renew_lease(&self) {
        if let Some(read) = &self.read {
            read.reading().renew();
        }
    }

    /// Deletes what is due, as a thread of the device does now and then. For tests.
    #[doc(hidden)]
    pub fn tend(&self) -> Result<(), ObjectsError> {
        self.writing()?.tend()
    }

    /// Opens a device for writing as a program on another machine would. For tests.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) except [`ObjectsError::InUse`].
    #[doc(hidden)]
    pub fn open_elsewhere(store: Arc<dyn Store>, options: &Options) -> Result<Self, ObjectsError> {
        Self::open_with(store, options, None, Right::ToAny)
    }

    pub(crate) fn open_with(
        store: Arc<dyn Store>,
        options: &Options,
        claim: Option<Claim>,
        right: Right<'_>,
    ) -> Result<Self, ObjectsError> {
        let watch = store.watch().unwrap_or_default();
        let requests = Arc::new(Counting::new(store));
        let store: Arc<dyn Store> = Arc::clone(&requests) as _;
        let clock = probe::conditions(&*store)?;
        let mut process = this_process(clock.now());
        if let Right::Continuing(kept) = right {
            let (before, _) = read_manifest(&*store)?;
            kept.check(&*store, &before)?;
            if kept.is_dirty() {
                // Before this opening ends the writing of anybody.
                kept.stored_of(&*store, &head::read(&*store)?)?;
            }
            kept.claim(&process.nonce, &before.writer)?;
            kept.name().clone_into(&mut process.journal);
        }
        let (manifest, mut stored) = take_over(&*store, &process, right)?;
        begin_with_a_copy(&*store, &mut stored)?;
        let store = with_bases(store, &manifest);
        let seen = Seen::compared(options, &*store, &manifest);
        let opened = manifest.state();
        let cache = Arc::new(cache(&manifest, options, &watch));
        let content = Arc::new(load(&store, &manifest, opened, cache)?);
        let name = store.name().to_owned();
        let Manifest { uuid, epoch, len_bytes, .. } = manifest;
        let objects = content.checkpoint.read().read_objects(&*store)?;
        let content_of_writer = Arc::clone(&content);
        let writer =
            Writer::new(content_of_writer, manifest, stored, objects, clock, options, &watch);
        let writer = Arc::new(writer);
        watch.note_writing(writer.facts());
        Ok(Self {
            name,
            len_bytes,
            uuid,
            opened: (epoch, opened),
            is_newest: true,
            read: None,
            cache_bytes: options.cache_bytes,
            fetching: Pool::new(FETCHING_THREADS),
            ahead: Ahead::new(options.cache_bytes / 2),
            tending: Some(Tending::begin(&writer)),
            writer: Some(writer),
            _claim: claim,
            content,
            requests,
            watch,
            seen,
        })
    }

    /// What becomes of it.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The number of its state.
    pub(crate) fn state_number(&self) -> u64 {
        self.writer.as_ref().map_or(self.opened.1.number, |it| it.facts().state.number)
    }

    /// How its threads measure time.
    pub(crate) fn timer(&self) -> Timer {
        self.content.store.timer()
    }

    /// Says in the store that the writer has no journal any more.
    pub(crate) fn give_up_journal(&self) -> Result<(), ObjectsError> {
        self.writing()?.change(|manifest| manifest.writer.journal.clear())
    }

    /// See [`Writer::note_journaled`].
    pub(crate) fn note_journaled(&self, chain: u64) {
        if let Some(writer) = &self.writer {
            writer.note_journaled(chain);
        }
    }

    /// Repeats each request for so long only: another disk has what was flushed.
    pub(crate) fn have_patience_for(&self, time: Duration) {
        if let Some(writer) = &self.writer {
            writer.have_patience_for(time);
            self.content.store.have_patience_for(time);
        }
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        self.requests.requests()
    }

    /// Sets which states are kept, and how long objects that none of them needs stay, in seconds.
    ///
    /// # Errors
    /// [`ObjectsError::Fenced`], and those of the store.
    pub fn set_policy(&self, policy: Policy, delete_after: u64) -> Result<(), ObjectsError> {
        self.writing()?.change(|manifest| {
            manifest.policy = policy;
            manifest.delete_after = delete_after;
        })
    }

    /// Makes a new state with the content of a kept one. The device can only be dropped then.
    ///
    /// # Errors
    /// [`ObjectsError::NoSuchState`], [`ObjectsError::Fenced`], and those of the store.
    pub fn roll_back(&self, to: &StateName) -> Result<State, ObjectsError> {
        self.writing()?.roll_back(to)
    }

    /// Forgets the clones that are not where they were made, so that nothing is kept for them.
    /// Returns the ways to where they were, and the states that they began with.
    ///
    /// # Errors
    /// Those of the store.
    pub fn forget_missing_clones(&self) -> Result<Vec<(String, u64)>, ObjectsError> {
        let confirmed = self.writing()?.confirmed();
        let store = &*self.content.store;
        let missing = hold::of_missing(store)?;
        for hold in &missing {
            confirmed.delete(store, &hold.name())?;
        }
        Ok(missing.into_iter().map(|hold| (hold.path, hold.state)).collect())
    }

    /// Makes a checkpoint, deletes what no kept state needs once its time is over, and finds
    /// objects that writers left behind when they were interrupted. `tell` gets the
    /// number of objects that are done, and the number of those that are known so far.
    ///
    /// # Errors
    /// [`ObjectsError::Fenced`], and those of the store.
    pub fn collect_garbage(
        &self,
        mut tell: impl FnMut(u64, u64) + Send,
    ) -> Result<Collected, ObjectsError> {
        garbage::collect(self.writing()?, &self.content, &mut tell)
    }

    /// The next range from `offset` on that has content; all before it is zeros. `None` if there is
    /// none.
    ///
    /// # Errors
    /// Those of the store.
    pub fn content_after(&self, offset: u64) -> Result<Option<Range<u64>>, ObjectsError> {
        let mut at = offset;
        while at < self.len_bytes {
            let end = self.len_bytes.min(at + LOOKED_AT_BYTES);
            if let Some(range) = self.content.first_within(at..end)? {
                return Ok(Some(range));
            }
            at = end;
        }
        Ok(None)
    }

    fn writing(&self) -> Result<&Writer, ObjectsError> {
        match &self.writer {
            Some(writer) => Ok(writer),
            None => Err(ObjectsError::Failed { why: format!("{} is read-only", self.name) }),
        }
    }

    /// A state that a reader has opened may be forgotten meanwhile.
    fn explained(&self, error: ObjectsError) -> ObjectsError {
        match error {
            ObjectsError::Store(StoreError { problem: Problem::NotFound, .. })
                if self.writer.is_none() && self.is_forgotten() =>
            {
                ObjectsError::Gone { store: self.name.clone(), state: self.opened.1.number }
            }
            error => error,
        }
    }

    fn is_forgotten(&self) -> bool {
        let manifest = head::read(&*self.content.store);
        manifest.is_ok_and(|it| it.states().all(|state| state.number != self.opened.1.number))
    }

    fn failed(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
    ) -> impl FnOnce(ObjectsError) -> DeviceError {
        move |error| DeviceError::io(self, operation, offset, len_bytes, io::Error::from(error))
    }
}

impl Device for ObjectDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = buf.len() as u64;
        check_call(self, Operation::Read, offset, len_bytes)?;
        if let Some(next) = self.ahead.of(offset..offset + len_bytes) {
            self.readahead(next.start, next.end - next.start);
        }
        let read = match &self.writer {
            Some(writer) => writer.patiently(|| self.content.read(buf, offset)),
            None => self.content.read(buf, offset).map_err(|error| self.explained(error)),
        };
        read.map_err(self.failed(Operation::Read, offset, len_bytes))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len_bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        check_call(self, Operation::Write, offset, len_bytes)?;
        let Some(writer) = &self.writer else { unreachable!("it is writable") };
        let parts: Vec<&[u8]> = bufs.iter().map(|buf| &**buf).collect();
        self.watch.note_write();
        writer.write(&parts, offset).map_err(self.failed(Operation::Write, offset, len_bytes))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        check_call(self, Operation::Flush, 0, 0)?;
        let Some(writer) = &self.writer else { unreachable!("it is writable") };
        self.watch.flushing(|| writer.flush()).map_err(self.failed(Operation::Flush, 0, 0))?;
        self.watch.note_writing(writer.facts());
        Ok(())
    }

    fn flushes_in_one_step(&self) -> bool {
        true
    }

    fn wants_discards(&self) -> bool {
        true
    }

    fn newer(&self) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        let newest = self.newest().map_err(self.failed(Operation::Read, 0, 0))?;
        Ok(newest.map(|newest| Arc::new(newest) as _))
    }

    fn particulars(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let (watch, content) = (self.watch.clone(), Arc::clone(&self.content));
        Some(Arc::new(InUse { watch, writer: self.writer.clone(), content }))
    }

    fn doubt(&self, offset: u64, len_bytes: u64) -> bool {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes);
        offset < end && self.content.forget(offset..end)
    }

    fn trouble(&self) -> Option<Trouble> {
        let of_store = || {
            let why = self.content.store.trouble()?;
            Some(Trouble { why, is_full: false })
        };
        self.writer.as_deref().and_then(Writer::trouble).or_else(of_store)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        let Some(writer) = &self.writer else { unreachable!("it is writable") };
        if len_bytes == 0 {
            return Ok(());
        }
        let discarded = writer.discard(offset..offset + len_bytes);
        discarded.map_err(self.failed(Operation::Discard, offset, len_bytes))
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes);
        if offset >= end || self.fetching.waiting() >= MOST_WAITING {
            return;
        }
        let content = Arc::clone(&self.content);
        self.fetching.run_first(move |jobs| {
            for wanted in content.wanted(offset..end) {
                let content = Arc::clone(&content);
                jobs.add(move || content.prefetch(&wanted));
            }
        });
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        // No thread will read what they would fetch.
        self.fetching.cancel_waiting();
        let Some(writer) = &self.writer else { return };
        writer.prepare_to_close();
        self.tending = None;
        if let Err(error) = writer.close() {
            tracing::error!("{}: closing: {error}", self.name);
        }
        if let Some(seen) = &self.seen {
            seen.note_last(&writer.manifest());
        }
    }
}

impl fmt::Debug for ObjectDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The same store, in which objects of a device's origin are found.
fn with_bases(store: Arc<dyn Store>, manifest: &Manifest) -> Arc<dyn Store> {
    let bases = manifest.bases.clone();
    if bases.is_empty() { store } else { Arc::new(Based::new(store, bases)) }
}

fn cache(manifest: &Manifest, options: &Options, watch: &Watch) -> Cache {
    let on_disk = options.cache.as_ref();
    let on_disk = on_disk.and_then(|folder| DiskCache::open(folder, manifest.uuid));
    Cache::new(options.cache_bytes, options.request_bytes, on_disk, watch.clone())
}

/// The content of a kept state.
fn load(
    store: &Arc<dyn Store>,
    manifest: &Manifest,
    state: State,
    cache: Arc<Cache>,
) -> Result<Content, ObjectsError> {
    let Past { checkpoint, tail } = Past::read(&**store, manifest, state)?;
    Ok(Content::with(store, Arc::new(checkpoint), cache, &tail))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use super::*;
    use crate::store::Directory;

    #[test]
    fn a_writer_that_has_closed_a_device_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Directory::new(folder.path()));
        ObjectDevice::create(&*store, 1 << 30, Policy::default(), 0).unwrap();
        let (manifest, _) = read_manifest(&*store).unwrap();
        let claim = Claim::take(&manifest.uuid).unwrap();
        assert!(claim.is_some());
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(claim);
        });
        let options = Options::default();
        let _device = ObjectDevice::open(Arc::clone(&store), &options).unwrap();
        ends.join().unwrap();

        let refused = ObjectDevice::open(store, &options).unwrap_err();
        assert!(matches!(refused, ObjectsError::InUse { .. }), "{refused}");
    }
}
