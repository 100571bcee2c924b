//! What the threads of a writer share that make requests.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::commit::Commit;
use super::open::Sealed;
use crate::content::Content;
use crate::error::ObjectsError;
use crate::flush::{Flush, Next};
use crate::head::read_manifest;
use crate::id::{Kind, ObjectId};
use crate::manifest::{self, Manifest};
use crate::patience::Patience;
use crate::segment::{Closed, OpenSegment};
use crate::store::StoreError;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) content: Arc<Content>,
    pub(super) uploads: Mutex<HashSet<ObjectId>>,
    pub(super) uploaded: Condvar,
    pub(super) failure: OnceLock<String>,
    pub(super) patience: Patience,
    /// How much of its journal it was given, if it has one.
    pub(super) journaled: Mutex<Option<u64>>,
    /// Of the device.
    uuid: [u8; 16],
    /// What the manifest says of its writer.
    nonce: [u8; 16],
    epoch: u32,
}

/// So often a writer looks again that finds a manifest from before its own: the reply may be old. If
/// not, somebody has set the store back.
const LOOKS_AT_THE_PAST: u32 = 8;

impl Shared {
    pub(super) fn new(content: Arc<Content>, patience: Patience, manifest: &Manifest) -> Self {
        Self {
            content,
            uploads: Mutex::default(),
            uploaded: Condvar::new(),
            failure: OnceLock::new(),
            patience,
            journaled: Mutex::new(manifest.writer.journaled),
            uuid: manifest.uuid,
            nonce: manifest.writer.nonce,
            epoch: manifest.epoch,
        }
    }

    /// Lets readers see a segment that is about to be written.
    pub(super) fn expect(&self, segment: &OpenSegment) {
        self.content.unsent.write().insert(segment.id, Arc::clone(segment.content()));
    }

    /// Makes a request until it succeeds, or cannot any more.
    pub(super) fn patiently<T>(
        &self,
        request: impl FnMut() -> Result<T, ObjectsError>,
    ) -> Result<T, ObjectsError> {
        self.patience.repeat(|| self.check().and_then(|()| self.check_owner()), request)
    }

    /// Creates an object that only this writer creates.
    pub(super) fn create(&self, name: &str, content: &Bytes) -> Result<(), ObjectsError> {
        self.patiently(|| self.judged(self.content.store.create(name, content.clone())))
    }

    /// Makes the flush that follows the newest state.
    pub(super) fn append(&self, commit: &mut Commit, flush: Flush) -> Result<(), ObjectsError> {
        let id = commit.manifest.next_flush;
        let next = Next::Flush(flush);
        let object = next.encode(id, &self.nonce);
        let Next::Flush(flush) = next else { unreachable!("it was one") };
        let store = &*self.content.store;
        self.patiently(|| {
            let created = store.create(&id.name(), object.clone());
            if created.as_ref().is_err_and(StoreError::is_answer)
                && let Ok((Next::End { by }, _)) = Next::read(store, id, &self.nonce)
            {
                return Err(self.fenced(by));
            }
            self.judged(created)
        })?;
        if !flush.content.is_empty() {
            self.content.cache.keep_flush(id, flush.content.clone());
        }
        commit.manifest.append(flush, object.len() as u64);
        Ok(())
    }

    pub(super) fn replace(
        &self,
        commit: &mut Commit,
        mut manifest: Manifest,
    ) -> Result<(), ObjectsError> {
        let store = &*self.content.store;
        manifest.number += 1;
        let mut looks = 0;
        let stored = self.patiently(|| {
            let replaced = commit.stored.replaced(store, &manifest);
            if replaced.as_ref().is_err_and(StoreError::is_answer) && self.is_past(&manifest) {
                looks += 1;
                if looks == LOOKS_AT_THE_PAST {
                    let why =
                        "it is from before the last one that was written: somebody has set it back";
                    return Err(ObjectsError::damaged(store, manifest::NAME, &why));
                }
            }
            self.judged(replaced)
        })?;
        commit.set_stored(manifest, stored);
        Ok(())
    }

    /// Whether the manifest in the store is one from before that which `next` follows.
    fn is_past(&self, next: &Manifest) -> bool {
        read_manifest(&*self.content.store)
            .is_ok_and(|(found, _)| found.epoch < next.epoch || found.number + 1 < next.number)
    }

    /// If a store says that an object is another one, which only this writer creates or replaces:
    /// either another writer has followed it, or a reply is wrong.
    fn judged<T>(&self, result: Result<T, StoreError>) -> Result<T, ObjectsError> {
        match result {
            Err(error) if error.is_answer() => {
                self.check_owner()?;
                Err(error.into_passing().into())
            }
            result => Ok(result?),
        }
    }

    fn fenced(&self, by: String) -> ObjectsError {
        ObjectsError::Fenced { store: self.content.store.name().to_owned(), by }
    }

    /// Whether the manifest in the store is that of a writer which has followed this one. While it
    /// cannot be read, it is not; nor while it is older, or that of another device: no reply about
    /// another place ends a writer.
    fn check_owner(&self) -> Result<(), ObjectsError> {
        match read_manifest(&*self.content.store) {
            Ok((other, _))
                if other.uuid == self.uuid
                    && other.epoch >= self.epoch
                    && other.writer.nonce != self.nonce =>
            {
                Err(self.fenced(other.writer.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), ObjectsError> {
        match self.failure.get() {
            None => Ok(()),
            Some(why) => Err(ObjectsError::Failed { why: why.clone() }),
        }
    }

    /// Remembers a failure.
    pub(super) fn recording(
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

    pub(super) fn upload(&self, segment: Closed, len_bytes: &OnceLock<u64>) {
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

    pub(super) fn wait_for(&self, sealed: &[Sealed]) -> Result<(), ObjectsError> {
        let mut uploads = self.uploads.lock();
        while self.failure.get().is_none() && sealed.iter().any(|it| uploads.contains(&it.id)) {
            self.uploaded.wait(&mut uploads);
        }
        drop(uploads);
        self.check()
    }
}
