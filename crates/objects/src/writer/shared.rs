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
use crate::manifest::Manifest;
use crate::patience::Patience;
use crate::segment::{Closed, OpenSegment};
use crate::store::{Problem, StoreError};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) content: Arc<Content>,
    pub(super) uploads: Mutex<HashSet<ObjectId>>,
    pub(super) uploaded: Condvar,
    pub(super) failure: OnceLock<String>,
    pub(super) patience: Patience,
    /// What the manifest says of its writer.
    nonce: [u8; 16],
}

impl Shared {
    pub(super) fn new(content: Arc<Content>, patience: Patience, nonce: [u8; 16]) -> Self {
        Self {
            content,
            uploads: Mutex::default(),
            uploaded: Condvar::new(),
            failure: OnceLock::new(),
            patience,
            nonce,
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

    pub(super) fn create(&self, name: &str, content: &Bytes) -> Result<(), ObjectsError> {
        self.patiently(|| Ok(self.content.store.create(name, content.clone())?))
    }

    /// Makes the flush that follows the newest state.
    pub(super) fn append(&self, commit: &mut Commit, flush: Flush) -> Result<(), ObjectsError> {
        let id = commit.manifest.next_flush;
        let next = Next::Flush(flush);
        let object = next.encode(id, &self.nonce);
        let Next::Flush(flush) = next else { unreachable!("it was one") };
        self.create(&id.name(), &object).map_err(|error| self.explained(error, Some(id)))?;
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
        let replaced = self.patiently(|| commit.stored.replaced(store, &manifest));
        let stored = replaced.map_err(|error| self.explained(error, None))?;
        commit.set_stored(manifest, stored);
        Ok(())
    }

    /// Another writer is why a condition does not hold. `flush` is the flush that it came before.
    fn explained(&self, error: ObjectsError, flush: Option<ObjectId>) -> ObjectsError {
        let ObjectsError::Store(StoreError { problem: Problem::Condition, .. }) = &error else {
            return error;
        };
        let store = &*self.content.store;
        match flush.map(|id| Next::read(store, id, &self.nonce)) {
            Some(Ok((Next::End { by }, _))) => {
                ObjectsError::Fenced { store: store.name().to_owned(), by }
            }
            _ => self.check_owner().err().unwrap_or(error),
        }
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
