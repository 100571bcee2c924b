//! Writing: content goes into segments, and a flush makes them the device's next state.
//!
//! # Invariants
//! - The store has every segment and map that a manifest names before it has the manifest.
//! - The manifest changes only by a replacement on condition that it is the one that this writer
//!   wrote last. So a writer that another one has followed changes nothing any more.
//! - A state has all that was written before the flush that made it, and nothing else except
//!   writes that no flush has followed yet.
//! - What the store refuses is repeated as long as the manifest is this writer's, or as the user
//!   wants. After a failure no flush succeeds.
//! - Content that waits for the store is at most [`MOST_UNSENT`] segments and the open one: a thread
//!   that writes more waits.
//! - No object is deleted before a manifest in the store says that no state needs it.
//!
//! Locks, in their order: `commit`, `open`, `uploads`.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use larder_device::Trouble;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::Clock;
use crate::compact;
use crate::content::Content;
use crate::device::{Options, read_manifest};
use crate::each::each;
use crate::error::ObjectsError;
use crate::garbage;
use crate::id::{Kind, ObjectId};
use crate::manifest::{self, Manifest, Mark, TailSegment};
use crate::map::{Checkpoint, Delta, Doomed, NewCheckpoint, ObjectRecord, Place, Recent};
use crate::patience::Patience;
use crate::pool::Pool;
use crate::segment::{Closed, OpenSegment};
use crate::states::State;
use crate::store::{Problem, Store, StoreError, Version};

/// The most segments that wait for the store.
const MOST_UNSENT: usize = 8;

/// The most segments in memory: those, and the open one.
pub(crate) const MOST_SEGMENTS: usize = MOST_UNSENT + 1;

const UPLOADING_THREADS: usize = 6;

/// After a checkpoint, what is left of sparse segments is rewritten: up to this part of what was
/// written since the checkpoint before.
const REWRITTEN_PART: u64 = 4;

/// How long the requests are repeated by which a writer says that it goes, if nothing else waits.
const CLOSING: Duration = Duration::from_secs(5);

/// A manifest that would name more segments becomes a checkpoint.
const MOST_TAIL: usize = 64;

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    open: Arc<Mutex<Open>>,
    commit: Mutex<Commit>,
    clock: Clock,
    /// Objects that have been deleted, and that a manifest still calls doomed.
    deleted: Arc<Mutex<HashSet<ObjectId>>>,
    pool: Pool,
    segment_bytes: usize,
    most_ranges: usize,
}

/// What the threads that upload need.
#[derive(Debug)]
struct Shared {
    content: Arc<Content>,
    uploads: Mutex<HashSet<ObjectId>>,
    uploaded: Condvar,
    failure: OnceLock<String>,
    patience: Patience,
    /// What the manifest says of its writer.
    nonce: [u8; 16],
}

#[derive(Debug)]
pub(crate) struct Open {
    segment: OpenSegment,
    epoch: u32,
    next_number: u32,
    /// Since the last manifest, in the order of their changes.
    pub(crate) sealed: Vec<Sealed>,
    /// Whether the last manifest is on its way.
    pub(crate) is_closed: bool,
}

/// A segment that is complete.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) id: ObjectId,
    /// Its length, once the store has it.
    pub(crate) len_bytes: Arc<OnceLock<u64>>,
    pub(crate) deltas: Vec<Delta>,
}

/// The manifest as the store has it.
#[derive(Debug)]
struct Commit {
    manifest: Manifest,
    stored: Stored,
}

/// A manifest in a store: its bytes, and the version that they have there.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) content: Bytes,
    pub(crate) version: Version,
}

impl Stored {
    /// Writes `manifest` in its place.
    pub(crate) fn replaced(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
    ) -> Result<Self, ObjectsError> {
        let content = Bytes::from(manifest.encode());
        let version =
            store.replace(manifest::NAME, content.clone(), &self.version, &self.content)?;
        Ok(Self { content, version })
    }
}

/// Why the manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Flush,
    /// All that can be deleted is to be known.
    Checkpoint,
    /// The writer goes.
    Close,
}

impl Writer {
    /// The writer that wrote `manifest`.
    pub(crate) fn new(
        content: Arc<Content>,
        manifest: Manifest,
        stored: Stored,
        clock: Clock,
        options: &Options,
    ) -> Self {
        let shared = Arc::new(Shared {
            content,
            uploads: Mutex::default(),
            uploaded: Condvar::new(),
            failure: OnceLock::new(),
            patience: Patience::new(options.patience),
            nonce: manifest.writer.nonce,
        });
        let epoch = manifest.epoch;
        let first = first_number();
        let segment = OpenSegment::new(ObjectId::new(epoch, first), options.segment_bytes);
        shared.expect(&segment);
        Self {
            shared,
            open: Arc::new(Mutex::new(Open {
                segment,
                epoch,
                next_number: first + 1,
                sealed: Vec::new(),
                is_closed: false,
            })),
            commit: Mutex::new(Commit { manifest, stored }),
            clock,
            deleted: Arc::default(),
            pool: Pool::new(UPLOADING_THREADS),
            segment_bytes: options.segment_bytes,
            most_ranges: options.most_ranges,
        }
    }

    fn store(&self) -> &dyn Store {
        &*self.shared.content.store
    }

    /// Why requests wait, if any does.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.shared.patience.trouble()
    }

    /// Makes a request until it succeeds, or cannot any more.
    pub(crate) fn patiently<T>(
        &self,
        request: impl FnMut() -> Result<T, ObjectsError>,
    ) -> Result<T, ObjectsError> {
        self.shared.patiently(request)
    }

    pub(crate) fn write(&self, parts: &[&[u8]], start: u64) -> Result<(), ObjectsError> {
        let mut open = self.open.lock();
        let mut at = start;
        for part in parts {
            let mut bytes = *part;
            while !bytes.is_empty() {
                self.shared.check()?;
                let (taken, offset) = open.segment.write(at, bytes);
                if taken == 0 {
                    self.seal(&mut open);
                    continue;
                }
                if offset.is_some() {
                    let place = Place { segment: open.segment.id, offset };
                    self.shared.content.recent.set(at..at + taken as u64, place);
                }
                bytes = &bytes[taken..];
                at += taken as u64;
            }
        }
        Ok(())
    }

    pub(crate) fn discard(&self, range: Range<u64>) -> Result<(), ObjectsError> {
        self.shared.check()?;
        let mut open = self.open.lock();
        open.segment.discard(range.clone());
        let place = Place { segment: open.segment.id, offset: None };
        self.shared.content.recent.set(range, place);
        Ok(())
    }

    /// Sends the open segment to the store, once there is room for it, and begins another.
    fn seal(&self, open: &mut MutexGuard<'_, Open>) {
        let id = open.new_id();
        let next = OpenSegment::new(id, self.segment_bytes);
        self.shared.expect(&next);
        let segment = std::mem::replace(&mut open.segment, next).close();
        let (id, len_bytes) = (segment.id, Arc::default());
        let deltas = segment.deltas.clone();
        open.sealed.push(Sealed { id, len_bytes: Arc::clone(&len_bytes), deltas });
        let mut uploads = self.shared.uploads.lock();
        while uploads.len() >= MOST_UNSENT && self.shared.failure.get().is_none() {
            self.shared.uploaded.wait(&mut uploads);
        }
        uploads.insert(id);
        drop(uploads);
        let shared = Arc::clone(&self.shared);
        self.pool.run(move || shared.upload(segment, &len_bytes));
    }

    /// Makes all that was written before the device's next state.
    pub(crate) fn flush(&self) -> Result<(), ObjectsError> {
        self.commit(Reason::Flush)
    }

    /// Makes a checkpoint, which finds what no kept state needs any more.
    pub(crate) fn checkpoint(&self) -> Result<(), ObjectsError> {
        self.commit(Reason::Checkpoint)
    }

    /// Has little patience if all that was written is in the store.
    pub(crate) fn prepare_to_close(&self) {
        let open = self.open.lock();
        if open.segment.is_empty() && open.sealed.is_empty() {
            self.shared.patience.end_after(CLOSING);
        }
    }

    /// Makes a checkpoint if one finds what no kept state needs any more, and deletes what is due.
    pub(crate) fn tend(&self) -> Result<(), ObjectsError> {
        if self.is_checkpoint_due() {
            // A store that is away for a while is no reason to fail.
            read_manifest(self.store())?;
            self.checkpoint()?;
        }
        self.delete_expired(&mut |_, _| ()).map(drop)
    }

    fn is_checkpoint_due(&self) -> bool {
        let freed = {
            let open = self.open.lock();
            if !open.sealed.is_empty() || !open.segment.has_no_content() {
                // Somebody writes, and will flush.
                return false;
            }
            open.segment.freed_bytes()
        };
        let mut manifest = self.manifest();
        let tail = manifest.tail.iter().flat_map(|segment| &segment.deltas);
        let tail = tail.filter(|delta| delta.offset.is_none()).map(|delta| delta.len);
        if freed + tail.sum::<u64>() >= self.segment_bytes as u64 {
            return true;
        }
        manifest.thin_out(self.clock.now());
        let checkpoint = Arc::clone(&*self.shared.content.checkpoint.read());
        garbage::is_there(&checkpoint.root, &manifest)
    }

    /// Flushes, and says in the manifest that nobody writes.
    pub(crate) fn close(&self) -> Result<(), ObjectsError> {
        self.commit(Reason::Close)
    }

    /// Applies `change` to the manifest in the store.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), ObjectsError> {
        let mut commit = self.commit.lock();
        self.shared.check()?;
        let mut manifest = commit.manifest.clone();
        change(&mut manifest);
        self.shared.recording(|| self.shared.replace(&mut commit, manifest))
    }

    /// The manifest in the store.
    pub(crate) fn manifest(&self) -> Manifest {
        self.commit.lock().manifest.clone()
    }

    fn commit(&self, reason: Reason) -> Result<(), ObjectsError> {
        let mut commit = self.commit.lock();
        self.shared.check()?;
        let sealed = {
            let mut open = self.open.lock();
            if !open.segment.is_empty() {
                self.seal(&mut open);
            }
            open.is_closed = reason == Reason::Close;
            std::mem::take(&mut open.sealed)
        };
        if sealed.is_empty() && reason == Reason::Flush {
            return Ok(());
        }
        self.shared.recording(|| {
            self.shared.wait_for(&sealed)?;
            self.advance(&mut commit, sealed, reason)
        })
    }

    /// Writes the manifest of the next state, which has the segments `sealed`.
    fn advance(
        &self,
        commit: &mut Commit,
        sealed: Vec<Sealed>,
        reason: Reason,
    ) -> Result<(), ObjectsError> {
        let mut manifest = commit.manifest.clone();
        manifest.writer.is_done = reason == Reason::Close;
        let now = self.clock.now_after(manifest.state().time);
        manifest.end_future(now);
        let before = manifest.state();
        let has_changed = !sealed.is_empty();
        let number = before.number + u64::from(has_changed);
        let state = if has_changed { State { number, time: now } } else { before };
        let new = sealed.into_iter().map(|sealed| TailSegment {
            id: sealed.id,
            len_bytes: *sealed.len_bytes.get().expect("the store has it"),
            born: number,
            deltas: sealed.deltas,
        });
        let mut tail = manifest.tail.clone();
        tail.extend(new);
        let deltas: usize = tail.iter().map(|segment| segment.deltas.len()).sum();
        let is_long = deltas > self.most_ranges || tail.len() > MOST_TAIL;
        let wants_checkpoint =
            reason == Reason::Checkpoint || (reason == Reason::Close && !tail.is_empty());
        if !is_long && !wants_checkpoint {
            let segments = tail.len() as u64;
            manifest.tail = tail;
            if has_changed {
                manifest.marks.push(Mark { state, segments });
            }
            manifest.thin_out(now);
            return self.shared.replace(commit, manifest);
        }
        // States of a checkpoint have numbers of their own: what died has died before this one.
        let state = State { number: before.number + 1, time: now };
        self.advance_by_checkpoint(commit, manifest, &tail, state)
    }

    fn advance_by_checkpoint(
        &self,
        commit: &mut Commit,
        mut manifest: Manifest,
        tail: &[TailSegment],
        state: State,
    ) -> Result<(), ObjectsError> {
        let content = &self.shared.content;
        let id = self.open.lock().new_id();
        let before = Arc::clone(&*content.checkpoint.read());
        let added = tail.iter().map(|segment| ObjectRecord {
            kind: Kind::Segment,
            id: segment.id,
            len_bytes: segment.len_bytes,
            born: segment.born,
            live_bytes: 0,
            died: None,
        });
        let (changes, added) = (changes(tail), added.collect::<Vec<_>>());
        let mut new = self.shared.patiently(|| {
            let added = added.clone();
            NewCheckpoint::after(&before, self.store(), &changes, added, id, state.number)
        })?;
        manifest.begin_era(state);
        manifest.thin_out(state.time);
        let root = &mut new.checkpoint.root;
        let deleted = std::mem::take(&mut *self.deleted.lock());
        root.doomed.retain(|doomed| !deleted.contains(&doomed.id));
        for doomed in &mut root.doomed {
            doomed.since = doomed.since.min(state.time);
        }
        garbage::doom(root, &manifest, state.time);
        let new = new.finish(id);
        manifest.root = new.checkpoint.at;
        self.shared.create(&Kind::Map.name(id), &new.content.into())?;
        self.shared.replace(commit, manifest)?;
        *content.checkpoint.write() = Arc::new(new.checkpoint);
        if !tail.is_empty() {
            let _no_writer = self.open.lock();
            content.recent.forget(&tail.iter().map(|segment| segment.id).collect());
        }
        self.delete_expired_later(&before, &commit.manifest, state.time);
        let tail_bytes: u64 = tail.iter().map(|segment| segment.len_bytes).sum();
        self.rewrite_later(tail_bytes / REWRITTEN_PART);
        Ok(())
    }

    /// Rewrites sparse segments in the background, with up to `most_bytes` to write.
    fn rewrite_later(&self, most_bytes: u64) {
        let (content, open) = (Arc::clone(&self.shared.content), Arc::clone(&self.open));
        let most_bytes = most_bytes.min(self.segment_bytes as u64);
        let segments = compact::sparse(&content.checkpoint.read().root, most_bytes);
        if !segments.is_empty() {
            self.pool.run(move || {
                if let Err(error) = compact::rewrite(&content, &open, &segments) {
                    tracing::warn!("{error}; its segments stay as they are");
                }
            });
        }
    }

    /// Rewrites all sparse segments. The next checkpoint knows the result. `tell` gets the
    /// number of those that are rewritten, and of those that are known so far.
    pub(crate) fn rewrite_sparse(
        &self,
        tell: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<u64, ObjectsError> {
        let content = &self.shared.content;
        let mut rewritten = 0;
        loop {
            let root = Arc::clone(&*content.checkpoint.read());
            let segments = compact::sparse(&root.root, self.segment_bytes as u64);
            if segments.is_empty() {
                return Ok(rewritten);
            }
            let all = rewritten + segments.len() as u64;
            tell(rewritten, all);
            let bytes = compact::rewrite(content, &self.open, &segments)?;
            self.checkpoint()?;
            if bytes == 0 {
                return Ok(rewritten);
            }
            rewritten = all;
        }
    }

    /// Deletes in the background what the checkpoint `before` called doomed, if its time is over.
    fn delete_expired_later(&self, before: &Checkpoint, manifest: &Manifest, now: u64) {
        for doomed in expired(before, manifest, now) {
            let (store, deleted) = (Arc::clone(&self.shared.content.store), self.deleted.clone());
            self.pool.run(move || match store.delete(&doomed.kind.name(doomed.id)) {
                Ok(()) => {
                    deleted.lock().insert(doomed.id);
                }
                Err(error) => tracing::warn!("{error}; it stays, and is deleted later"),
            });
        }
    }

    /// Deletes what the checkpoint in the store calls doomed, if its time is over. Returns their
    /// number. `tell` gets the number of deleted ones, and that of all.
    pub(crate) fn delete_expired(
        &self,
        tell: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<u64, ObjectsError> {
        let commit = self.commit.lock();
        let checkpoint = Arc::clone(&*self.shared.content.checkpoint.read());
        let mut expired = expired(&checkpoint, &commit.manifest, self.clock.now());
        let deleted = self.deleted.lock();
        expired.retain(|doomed| !deleted.contains(&doomed.id));
        drop((deleted, commit));
        let (store, all) = (self.store(), expired.len() as u64);
        let mut done = 0;
        each(
            &expired,
            |doomed| Ok(store.delete(&doomed.kind.name(doomed.id))?),
            |doomed| {
                self.deleted.lock().insert(doomed.id);
                done += 1;
                tell(done, all);
            },
        )?;
        Ok(all)
    }
}

/// The number of a writer's first object, at random. A store that an administrator sets back to an
/// earlier state sees the same epochs again, but not the same names: neither its own newer objects
/// nor a cache elsewhere pass for what a new writer creates.
fn first_number() -> u32 {
    let random = uuid::Uuid::new_v4();
    u32::from_le_bytes(random.as_bytes()[..4].try_into().expect("4 bytes")) >> 1
}

/// The objects that `checkpoint`, which is in the store, calls doomed, and whose time is over.
fn expired(checkpoint: &Checkpoint, manifest: &Manifest, now: u64) -> Vec<Doomed> {
    let is_over = |doomed: &&Doomed| now.saturating_sub(doomed.since) >= manifest.delete_after;
    checkpoint.root.doomed.iter().filter(is_over).copied().collect()
}

/// What segments changed together.
fn changes(tail: &[TailSegment]) -> Vec<(Range<u64>, Option<crate::map::Source>)> {
    let all = Recent::new();
    for segment in tail {
        for delta in &segment.deltas {
            all.set(delta.range(), Place { segment: segment.id, offset: delta.offset });
        }
    }
    let known = all.within(0..u64::MAX).into_iter();
    known.map(|(range, place)| (range, place.source())).collect()
}

impl Open {
    pub(crate) fn new_id(&mut self) -> ObjectId {
        let id = ObjectId::new(self.epoch, self.next_number);
        self.next_number = self.next_number.checked_add(1).expect("objects of one opening");
        id
    }
}

impl Shared {
    /// Lets readers see a segment that is about to be written.
    fn expect(&self, segment: &OpenSegment) {
        self.content.unsent.write().insert(segment.id, Arc::clone(segment.content()));
    }

    /// Makes a request until it succeeds, or cannot any more.
    fn patiently<T>(
        &self,
        request: impl FnMut() -> Result<T, ObjectsError>,
    ) -> Result<T, ObjectsError> {
        self.patience.repeat(|| self.check().and_then(|()| self.check_owner()), request)
    }

    fn create(&self, name: &str, content: &Bytes) -> Result<(), ObjectsError> {
        self.patiently(|| Ok(self.content.store.create(name, content.clone())?))
    }

    fn replace(&self, commit: &mut Commit, manifest: Manifest) -> Result<(), ObjectsError> {
        let store = &*self.content.store;
        let replaced = self.patiently(|| commit.stored.replaced(store, &manifest));
        commit.stored = replaced.map_err(|error| match error {
            ObjectsError::Store(StoreError { problem: Problem::Condition, .. }) => {
                self.check_owner().err().unwrap_or(error)
            }
            error => error,
        })?;
        commit.manifest = manifest;
        Ok(())
    }

    /// Whether the manifest in the store is another writer's. While it cannot be read, it is not.
    fn check_owner(&self) -> Result<(), ObjectsError> {
        match read_manifest(&*self.content.store) {
            Ok((other, _)) if other.writer.nonce != self.nonce => Err(ObjectsError::Fenced {
                store: self.content.store.name().to_owned(),
                by: other.writer.to_string(),
            }),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), ObjectsError> {
        match self.failure.get() {
            None => Ok(()),
            Some(why) => Err(ObjectsError::Failed { why: why.clone() }),
        }
    }

    /// Remembers a failure.
    fn recording(
        &self,
        work: impl FnOnce() -> Result<(), ObjectsError>,
    ) -> Result<(), ObjectsError> {
        work().inspect_err(|error| self.fail(error))
    }

    fn fail(&self, error: &dyn std::fmt::Display) {
        if self.failure.set(error.to_string()).is_ok() {
            tracing::error!("{error}; what was not flushed is lost, and nothing more is written");
        }
        // A thread may be about to wait.
        drop(self.uploads.lock());
        self.uploaded.notify_all();
    }

    fn upload(&self, segment: Closed, len_bytes: &OnceLock<u64>) {
        let id = segment.id;
        let object = segment.seal();
        match self.create(&Kind::Segment.name(id), &object) {
            Ok(()) => {
                let _ = len_bytes.set(object.len() as u64);
                self.content.cache.keep(id, &object);
                self.content.unsent.write().remove(&id);
            }
            Err(error) => self.fail(&error),
        }
        self.uploads.lock().remove(&id);
        self.uploaded.notify_all();
    }

    fn wait_for(&self, sealed: &[Sealed]) -> Result<(), ObjectsError> {
        let mut uploads = self.uploads.lock();
        while self.failure.get().is_none() && sealed.iter().any(|it| uploads.contains(&it.id)) {
            self.uploaded.wait(&mut uploads);
        }
        drop(uploads);
        self.check()
    }
}
