//! The lock of a tree block that can change.
//!
//! A reader-writer lock that spins while its owner runs and then sleeps, from `parking_lot`, with
//! guards that own their lock, so that a path can hold them. Every acquisition passes the validator
//! in debug builds. The lock counts the acquisitions that have to wait.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RwLock};

use super::context::LockContext;
use super::validator::{Attempt, LockPlace, LockRecord};
use super::waiting::Wakeup;

#[cfg(not(feature = "shuttle"))]
type Raw = parking_lot::RawRwLock;
#[cfg(feature = "shuttle")]
type Raw = super::shuttle_raw::RawLock;

/// A value that many threads read or one thread changes. A clone is another handle on the same
/// lock.
pub(crate) struct TreeLock<T> {
    cell: Arc<RwLock<Raw, T>>,
    version: Option<Arc<Version>>,
}

/// Tells whether a writer took the lock since a thread last looked: odd while a writer has it.
#[derive(Default)]
pub(crate) struct Version(AtomicU64);

impl Version {
    /// Pairs with the changes that a writer makes between two calls of `step`: a thread that sees
    /// any of them through another lock sees another version here.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn step(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl<T> Clone for TreeLock<T> {
    fn clone(&self) -> Self {
        Self { cell: self.cell.clone(), version: self.version.clone() }
    }
}

impl<T> TreeLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { cell: Arc::new(RwLock::new(value)), version: None }
    }

    /// A lock with a version.
    pub(crate) fn with_version(value: T) -> Self {
        Self { version: Some(Arc::default()), ..Self::new(value) }
    }

    /// Whether both are handles on one lock.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }

    /// The lock's version, if it has one.
    pub(crate) fn version(&self) -> Option<&Arc<Version>> {
        self.version.as_ref()
    }

    /// Waits for the right to read.
    #[track_caller]
    pub(crate) fn read<'c>(&self, place: LockPlace, context: &'c LockContext) -> ReadGuard<'c, T> {
        let record = LockRecord::new(place, Attempt::Wait, Location::caller());
        let attempt = || self.cell.try_read_arc();
        let guard = attempt()
            .unwrap_or_else(|| context.wait(self.address(), attempt, || self.cell.read_arc()));
        ReadGuard {
            guard,
            _wakeup: context.waiting.reads(self.address()),
            _record: record,
            _tree: PhantomData,
        }
    }

    /// Waits for the right to change.
    #[track_caller]
    pub(crate) fn write<'c>(
        &self,
        place: LockPlace,
        context: &'c LockContext,
    ) -> WriteGuard<'c, T> {
        let record = LockRecord::new(place, Attempt::Wait, Location::caller());
        let attempt = || self.cell.try_write_arc();
        let guard = attempt()
            .unwrap_or_else(|| context.wait(self.address(), attempt, || self.cell.write_arc()));
        self.guard(guard, record, place, context)
    }

    /// The right to change, if no thread has any right now.
    #[track_caller]
    pub(crate) fn try_write<'c>(
        &self,
        place: LockPlace,
        context: &'c LockContext,
    ) -> Option<WriteGuard<'c, T>> {
        let guard = self.cell.try_write_arc()?;
        let record = LockRecord::new(place, Attempt::Try, Location::caller());
        Some(self.guard(guard, record, place, context))
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.cell).addr()
    }

    fn guard<'c>(
        &self,
        guard: ArcRwLockWriteGuard<Raw, T>,
        record: LockRecord,
        place: LockPlace,
        context: &'c LockContext,
    ) -> WriteGuard<'c, T> {
        let version = self.version.clone();
        if let Some(version) = &version {
            version.step();
        }
        let since = (place.level > 0).then(Instant::now);
        let wakeup = context.waiting.writes(self.address());
        WriteGuard { guard, _wakeup: wakeup, _record: record, version, since, context }
    }
}

/// The right to read.
pub(crate) struct ReadGuard<'c, T> {
    guard: ArcRwLockReadGuard<Raw, T>,
    _wakeup: Wakeup,
    _record: LockRecord,
    /// Guards live no longer than the tree that they belong to.
    _tree: PhantomData<&'c LockContext>,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

/// The right to change.
pub(crate) struct WriteGuard<'c, T> {
    guard: ArcRwLockWriteGuard<Raw, T>,
    _wakeup: Wakeup,
    _record: LockRecord,
    version: Option<Arc<Version>>,
    /// When the thread took it, for internal nodes: all threads below may wait until it ends.
    since: Option<Instant>,
    context: &'c LockContext,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // The guard releases the lock itself after this.
        if let Some(version) = &self.version {
            version.step();
        }
        if let Some(since) = self.since {
            self.context.counters.internal_node_held(since.elapsed());
        }
    }
}
