//! Writing: content goes into segments, and a flush makes them the device's next state.
//!
//! # Invariants
//! - The store has every segment and map that a manifest or flush names before it has that.
//! - The device's state changes only by the creation of the flush with the next number, and the
//!   manifest only by a replacement on condition that it is the one that this writer wrote last. So
//!   a writer that another one has followed changes nothing any more.
//! - A state has all that was written before the flush that made it, and nothing else except
//!   writes that no flush has followed yet.
//! - What the store refuses is repeated as long as the manifest is this writer's, or as the user
//!   wants. After a failure no flush succeeds.
//! - Content that waits for the store is at most [`MOST_UNSENT`] segments and the open one: a thread
//!   that writes more waits.
//! - No object is deleted before a manifest in the store says that no state needs it, and has what
//!   the object says if that is a flush.
//!
//! Locks, in their order: `commit`, `open`, `uploads`.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use larder_device::Trouble;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::Clock;
use crate::compact;
use crate::confirmed::Confirmed;
use crate::content::Content;
use crate::doomed;
use crate::each::each;
use crate::error::ObjectsError;
use crate::flush::{Flush, MOST_CONTENT_BYTES};
use crate::head::{Stored, read_manifest};
use crate::hold;
use crate::id::{Kind, ObjectId};
use crate::manifest::{Manifest, TailSegment};
use crate::map::{Checkpoint, NewCheckpoint, ObjectRecord, Place, Recent};
use crate::options::{MOST_UNSENT, Options};
use crate::patience::Patience;
use crate::pool::Pool;
use crate::segment::{Closed, OpenSegment};
use crate::states::State;
use crate::store::Store;
use crate::timer::Timer;
use crate::watch::{Watch, Writing};

mod commit;
mod open;
mod roll_back;
mod shared;

pub(crate) use commit::Commit;
pub(crate) use open::Open;
use open::Sealed;
use shared::Shared;

const UPLOADING_THREADS: usize = 6;

/// How long the requests are repeated by which a writer says that it goes, if nothing else waits.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    open: Arc<Mutex<Open>>,
    commit: Arc<Mutex<Commit>>,
    clock: Clock,
    /// Objects that have been deleted, and that a manifest still calls doomed.
    deleted: Arc<Mutex<HashSet<ObjectId>>>,
    /// Uploads and deletions, which wait for no lock that a flush has.
    pool: Pool,
    rewriting: Pool,
    segment_bytes: usize,
    most_ranges: usize,
    most_flushes: u64,
}

/// What was written since the last flush.
struct Unflushed {
    sealed: Vec<Sealed>,
    /// What the flush has itself, and the id of the segment that it was meant for.
    own: Option<(Closed, ObjectId)>,
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
        objects: Vec<ObjectRecord>,
        clock: Clock,
        options: &Options,
        watch: &Watch,
    ) -> Self {
        let patience = Patience::new(options.patience, content.store.timer(), watch.clone());
        let shared = Shared::new(content, patience, &manifest);
        let open = Open::new(manifest.epoch, options.segment_bytes);
        shared.expect(&open.segment);
        Self {
            shared: Arc::new(shared),
            open: Arc::new(Mutex::new(open)),
            commit: Arc::new(Mutex::new(Commit::new(manifest, stored, objects))),
            clock,
            deleted: Arc::default(),
            pool: Pool::new(UPLOADING_THREADS),
            rewriting: Pool::new(1),
            segment_bytes: options.segment_bytes,
            most_ranges: options.most_ranges,
            most_flushes: options.most_flushes,
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
        let segment = self.close_segment(open);
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

    fn close_segment(&self, open: &mut Open) -> Closed {
        let next = OpenSegment::new(open.new_id(), self.segment_bytes);
        self.shared.expect(&next);
        std::mem::replace(&mut open.segment, next).close()
    }

    /// Takes what was written since the last flush. A little content becomes that of the flush
    /// `flush`: readers find it there from now on.
    fn take_unflushed(&self, flush: ObjectId) -> Unflushed {
        let mut open = self.open.lock();
        if open.segment.len_bytes() > MOST_CONTENT_BYTES {
            self.seal(&mut open);
        }
        let own = (!open.segment.is_empty()).then(|| {
            let mut closed = self.close_segment(&mut open);
            let meant = std::mem::replace(&mut closed.id, flush);
            let content = &self.shared.content;
            content.unsent.write().insert(flush, Arc::clone(closed.content()));
            for delta in &closed.deltas {
                content.recent.set(delta.range(), Place { segment: flush, offset: delta.offset });
            }
            (closed, meant)
        });
        Unflushed { sealed: std::mem::take(&mut open.sealed), own }
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
        if self.open.lock().is_empty() {
            self.shared.patience.end_after(CLOSING);
        }
    }

    /// What is written next is in the journal, before the record that continues `chain`.
    pub(crate) fn note_journaled(&self, chain: u64) {
        *self.shared.journaled.lock() = Some(chain);
    }

    /// Repeats each request for so long only.
    pub(crate) fn have_patience_for(&self, time: Duration) {
        self.shared.patience.shorten(time);
    }

    /// Makes a checkpoint if one finds what no kept state needs any more, and deletes what is due.
    pub(crate) fn tend(&self) -> Result<(), ObjectsError> {
        self.shared.check()?;
        if self.is_checkpoint_due() {
            // A store that is away for a while is no reason to fail.
            read_manifest(self.store())?;
            self.checkpoint()?;
        } else {
            self.rewrite_later();
        }
        self.delete_expired(&mut |_, _| ()).map(drop)
    }

    fn is_checkpoint_due(&self) -> bool {
        let freed = {
            let open = self.open.lock();
            if !open.sealed.is_empty() || open.segment.len_bytes() > 0 {
                // Somebody writes, and will flush.
                return false;
            }
            open.segment.freed_bytes()
        };
        let commit = self.commit.lock();
        let (mut manifest, has_adopted) = (commit.manifest.clone(), commit.has_adopted());
        let objects = Arc::clone(&commit.objects);
        drop(commit);
        let tail = manifest.tail.iter().flat_map(|segment| &segment.deltas);
        let tail = tail.filter(|delta| delta.offset.is_none()).map(|delta| delta.len);
        if has_adopted || freed + tail.sum::<u64>() >= self.segment_bytes as u64 {
            return true;
        }
        manifest.thin_out(self.clock.now());
        doomed::is_there(&objects, &manifest)
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

    /// What its last manifest does not need may be deleted.
    pub(crate) fn confirmed(&self) -> Confirmed {
        self.commit.lock().stored.confirmed()
    }

    /// What the manifest and the flushes in the store say together.
    pub(crate) fn manifest(&self) -> Manifest {
        self.commit.lock().manifest.clone()
    }

    /// How its threads wait.
    pub(crate) fn timer(&self) -> Timer {
        self.store().timer()
    }

    /// The time, by the clock of the store.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// What others may know.
    pub(crate) fn facts(&self) -> Writing {
        let manifest = &self.commit.lock().manifest;
        let (epoch, state) = (manifest.epoch, manifest.state());
        Writing { epoch, state, kept_states: manifest.states().count() as u64 }
    }

    fn commit(&self, reason: Reason) -> Result<(), ObjectsError> {
        let mut commit = self.commit.lock();
        self.shared.check()?;
        let unflushed = self.take_unflushed(commit.manifest.next_flush);
        commit.is_closed = reason == Reason::Close;
        self.shared.recording(|| {
            self.shared.wait_for(&unflushed.sealed)?;
            self.append(&mut commit, unflushed)?;
            let is_due = commit.is_manifest_due(self.most_flushes, self.most_ranges);
            if reason != Reason::Flush || is_due {
                self.write_manifest(&mut commit, reason)?;
            }
            Ok(())
        })
    }

    /// Makes the next state, if anything has changed.
    fn append(&self, commit: &mut Commit, unflushed: Unflushed) -> Result<(), ObjectsError> {
        let Unflushed { sealed, own } = unflushed;
        if sealed.is_empty() && own.is_none() {
            return Ok(());
        }
        let before = commit.manifest.state();
        let number = before.number + 1;
        let segments = sealed.into_iter().map(|sealed| TailSegment {
            id: sealed.id,
            len_bytes: *sealed.len_bytes.get().expect("the store has it"),
            born: number,
            deltas: sealed.deltas,
        });
        let (own, meant) = own.unzip();
        let flush = Flush {
            state: State { number, time: self.clock.now_after(before.time) },
            segments: segments.collect(),
            content: own.as_ref().map(Closed::copy).unwrap_or_default(),
            deltas: own.map(|own| own.deltas).unwrap_or_default(),
            journaled: *self.shared.journaled.lock(),
        };
        let id = commit.manifest.next_flush;
        self.shared.append(commit, flush)?;
        let mut unsent = self.shared.content.unsent.write();
        unsent.remove(&id);
        if let Some(meant) = meant {
            unsent.remove(&meant);
        }
        Ok(())
    }

    /// Replaces the manifest in the store, with a new checkpoint if it is time for one.
    fn write_manifest(&self, commit: &mut Commit, reason: Reason) -> Result<(), ObjectsError> {
        let is_long = commit.is_long(self.most_ranges);
        let mut manifest = commit.manifest.clone();
        manifest.writer.is_done = reason == Reason::Close;
        let now = self.clock.now_after(manifest.state().time);
        manifest.end_future(now);
        let wants_checkpoint =
            reason == Reason::Checkpoint || (reason == Reason::Close && !manifest.tail.is_empty());
        if !is_long && !wants_checkpoint {
            manifest.thin_out(now);
            return self.shared.replace(commit, manifest);
        }
        // States of a checkpoint have numbers of their own: what died has died before this one.
        let state = State { number: manifest.state().number + 1, time: now };
        self.write_checkpoint(commit, manifest, state)
    }

    fn write_checkpoint(
        &self,
        commit: &mut Commit,
        manifest: Manifest,
        state: State,
    ) -> Result<(), ObjectsError> {
        let content = &self.shared.content;
        let id = self.open.lock().new_id();
        let before = Arc::clone(&*content.checkpoint.read());
        let tail = manifest.tail.clone();
        let old = Arc::clone(&commit.objects);
        let changes = changes(&tail);
        let added: Vec<_> = tail.iter().map(TailSegment::record).collect();
        let new = self.shared.patiently(|| {
            let objects = old.iter().chain(&added).copied().collect();
            NewCheckpoint::after(&before, self.store(), &changes, objects, id, state.number)
        })?;
        self.install(commit, manifest, new, &before, &old, state)?;
        if !tail.is_empty() {
            let _no_writer = self.open.lock();
            content.recent.forget(&tail.iter().map(|segment| segment.id).collect());
        }
        self.delete_expired_later(commit, state.time);
        self.rewrite_later();
        Ok(())
    }

    /// Makes a checkpoint the device's, with the state `state`. It was made from the checkpoint
    /// `before`, whose list of objects is `old`.
    fn install(
        &self,
        commit: &mut Commit,
        mut manifest: Manifest,
        mut new: NewCheckpoint,
        before: &Checkpoint,
        old: &[ObjectRecord],
        state: State,
    ) -> Result<(), ObjectsError> {
        manifest.begin_era(state);
        manifest.thin_out(state.time);
        let deleted = std::mem::take(&mut *self.deleted.lock());
        new.objects.retain(|object| !deleted.contains(&object.id));
        for since in new.objects.iter_mut().filter_map(|object| object.doomed.as_mut()) {
            *since = (*since).min(state.time);
        }
        doomed::doom(&mut new.objects, &manifest, state.time);
        let name = Kind::Map.name(new.id);
        let (map, checkpoint, objects) = new.finish(before, old);
        manifest.root = checkpoint.at;
        self.shared.create(&name, &map.into())?;
        self.shared.replace(commit, manifest)?;
        commit.note_checkpoint(state, objects);
        *self.shared.content.checkpoint.write() = Arc::new(checkpoint);
        Ok(())
    }

    /// Rewrites in the background what is left of light objects.
    fn rewrite_later(&self) {
        if self.rewriting.waiting() > 0 {
            return;
        }
        let (shared, open) = (Arc::clone(&self.shared), Arc::clone(&self.open));
        let (commit, clock) = (Arc::clone(&self.commit), self.clock.clone());
        let segment_bytes = self.segment_bytes as u64;
        self.rewriting.run(move || {
            let (checkpoint, groups) = {
                let mut commit = commit.lock();
                if commit.has_adopted() {
                    // The same objects look light until the next checkpoint.
                    return;
                }
                let settled = commit.settled(clock.now());
                let Commit { manifest, objects, .. } = &*commit;
                let groups = compact::worthwhile(objects, manifest, segment_bytes, settled);
                (Arc::clone(&*shared.content.checkpoint.read()), groups)
            };
            for group in groups {
                let rewritten =
                    compact::rewrite(&shared.content, &checkpoint, &open, &commit, &group);
                match rewritten {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        return tracing::warn!("{error}; its objects stay as they are");
                    }
                }
            }
        });
    }

    /// Rewrites all light objects. The next checkpoint knows the result. `tell` gets the number of
    /// those that are rewritten, and of those that are known so far.
    pub(crate) fn rewrite_all(
        &self,
        tell: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<u64, ObjectsError> {
        let content = &self.shared.content;
        let mut rewritten = 0;
        // Another thread may make a checkpoint meanwhile: the rest follows that one.
        loop {
            let (checkpoint, groups) = {
                let commit = self.commit.lock();
                let Commit { manifest, objects, .. } = &*commit;
                let groups = compact::all(objects, manifest, self.segment_bytes as u64);
                (Arc::clone(&*content.checkpoint.read()), groups)
            };
            if groups.is_empty() {
                return Ok(rewritten);
            }
            let all: u64 = groups.iter().map(|group| group.len() as u64).sum();
            let (before, mut is_current) = (rewritten, true);
            for group in groups {
                tell(rewritten, before + all);
                is_current =
                    compact::rewrite(content, &checkpoint, &self.open, &self.commit, &group)?;
                if !is_current {
                    break;
                }
                rewritten += group.len() as u64;
            }
            self.checkpoint()?;
            if is_current {
                return Ok(rewritten);
            }
        }
    }

    /// The objects that the last checkpoint knows.
    pub(crate) fn objects(&self) -> Arc<Vec<ObjectRecord>> {
        Arc::clone(&self.commit.lock().objects)
    }

    /// Deletes in the background what the checkpoint in the store calls doomed, if its time is over.
    fn delete_expired_later(&self, commit: &mut Commit, now: u64) {
        let expired = expired(&commit.objects, &commit.manifest, now);
        if expired.is_empty() || !commit.is_copied(self.store()) {
            return;
        }
        let (store, deleted) = (Arc::clone(&self.shared.content.store), self.deleted.clone());
        let confirmed = commit.stored.confirmed();
        // Times of states may be later than the store's: leases have the store's.
        let clock = self.clock.clone();
        self.pool.run(move || {
            let delete = |object: &ObjectRecord| {
                Ok(confirmed.delete(&*store, &object.kind.name(object.id))?)
            };
            let is_deleted = hold::not_held(&*store, expired, clock.now()).and_then(|expired| {
                each(&expired, delete, |object| {
                    deleted.lock().insert(object.id);
                })
            });
            if let Err(error) = is_deleted {
                tracing::warn!("{error}; what no state needs stays, and is deleted later");
            }
        });
    }

    /// Deletes what the checkpoint in the store calls doomed, if its time is over. Returns their
    /// number. `tell` gets the number of deleted ones, and that of all.
    pub(crate) fn delete_expired(
        &self,
        tell: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<u64, ObjectsError> {
        let mut commit = self.commit.lock();
        let mut expired = expired(&commit.objects, &commit.manifest, self.clock.now());
        let deleted = self.deleted.lock();
        expired.retain(|doomed| !deleted.contains(&doomed.id));
        drop(deleted);
        if expired.is_empty() || !commit.is_copied(self.store()) {
            return Ok(0);
        }
        let confirmed = commit.stored.confirmed();
        drop(commit);
        let expired = hold::not_held(self.store(), expired, self.clock.now())?;
        let (store, all) = (self.store(), expired.len() as u64);
        let mut done = 0;
        each(
            &expired,
            |doomed| Ok(confirmed.delete(store, &doomed.kind.name(doomed.id))?),
            |doomed| {
                self.deleted.lock().insert(doomed.id);
                done += 1;
                tell(done, all);
            },
        )?;
        Ok(all)
    }
}

/// Those of the objects of a checkpoint in the store that it calls doomed, and whose time is over.
fn expired(objects: &[ObjectRecord], manifest: &Manifest, now: u64) -> Vec<ObjectRecord> {
    let is_over = |object: &&ObjectRecord| {
        object.doomed.is_some_and(|since| now.saturating_sub(since) >= manifest.delete_after)
    };
    objects.iter().filter(is_over).copied().collect()
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
