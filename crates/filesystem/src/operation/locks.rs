//! The locks that operations take on inodes.

use std::sync::Arc;

use parking_lot::{MutexGuard, RwLockWriteGuard};

use crate::inode::id::InodeId;
use crate::inode::live::{InodeState, LiveInode};

/// Files that nobody else changes or writes back: their extents stay, and their data and sizes.
pub(crate) struct Still<'a> {
    _guards: [Vec<MutexGuard<'a, ()>>; 2],
}

impl<'a> Still<'a> {
    /// Keeps inodes, of which some may be given twice. The caller is not inside the door.
    pub(crate) fn new(inodes: impl IntoIterator<Item = &'a Arc<LiveInode>>) -> Self {
        let mut inodes: Vec<&Arc<LiveInode>> = inodes.into_iter().collect();
        inodes.sort_unstable_by_key(|live| live.id());
        inodes.dedup_by_key(|live| live.id());
        let changing = inodes.iter().map(|live| live.changing.lock()).collect();
        let flushing = inodes.iter().map(|live| live.flushing.lock()).collect();
        Self { _guards: [changing, flushing] }
    }
}

/// The states of several inodes, locked in order.
pub(crate) struct Locked<'a> {
    guards: Vec<(InodeId, RwLockWriteGuard<'a, InodeState>)>,
}

impl<'a> Locked<'a> {
    /// Locks inodes, some of which may be given twice.
    pub(crate) fn new(inodes: impl IntoIterator<Item = &'a Arc<LiveInode>>) -> Self {
        let mut inodes: Vec<&Arc<LiveInode>> = inodes.into_iter().collect();
        inodes.sort_unstable_by_key(|live| live.id());
        inodes.dedup_by_key(|live| live.id());
        Self { guards: inodes.into_iter().map(|live| (live.id(), live.write())).collect() }
    }

    /// The state of one of them.
    ///
    /// # Panics
    /// When it is not locked.
    pub(crate) fn of(&mut self, live: &LiveInode) -> &mut InodeState {
        let found = self.guards.iter_mut().find(|(id, _)| *id == live.id());
        &mut found.expect("it is among those that were locked").1
    }
}
