//! The locks that operations take on inodes. They are those of `docs/locking.md`, in its order:
//! `changing` and `flushing` of files before a thread joins the transaction, then `reading`, then
//! states.
//!
//! # Invariants
//! - Several locks of one kind are taken in the order of subvolume and number.
//! - No state is locked during device I/O for data.
//! - Extents of a file do not change for a thread that [keeps its extents](KeepsExtents), and for
//!   readers. Data and size of a file do not change, except by writeback, for a thread that [keeps
//!   its data](KeepsData).

use std::ops::Deref;
use std::sync::Arc;

use larder_locks::RankedMutexGuard;
use larder_locks::rank::{CHANGING, FLUSHING};

use crate::live::inode::{InodeState, LiveInode, StateGuard};

/// No other thread changes data or size of the file, except by writeback.
pub(crate) trait KeepsData {}

/// No other thread writes the file back, or changes its extents in another way.
pub(crate) trait KeepsExtents {}

/// For changing a file's data, while other threads may write it back.
pub(crate) struct Changing<'a> {
    _guard: RankedMutexGuard<'a, (), CHANGING>,
}

/// For writing a file back, while other threads may write to it.
pub(crate) struct Flushing<'a> {
    _guard: RankedMutexGuard<'a, (), FLUSHING>,
}

/// Files that no other thread changes or writes back.
pub(crate) struct Still<'a> {
    _changing: Vec<RankedMutexGuard<'a, (), CHANGING>>,
    _flushing: Vec<RankedMutexGuard<'a, (), FLUSHING>>,
}

impl KeepsData for Changing<'_> {}
impl KeepsData for Still<'_> {}
impl KeepsExtents for Flushing<'_> {}
impl KeepsExtents for Still<'_> {}

impl<'a> Changing<'a> {
    pub(crate) fn new(live: &'a LiveInode) -> Self {
        Self { _guard: live.changing.lock() }
    }
}

impl<'a> Flushing<'a> {
    pub(crate) fn new(live: &'a LiveInode) -> Self {
        Self { _guard: live.flushing.lock() }
    }
}

impl<'a> Still<'a> {
    /// Locks files, some of which may be given twice.
    pub(crate) fn new(inodes: impl IntoIterator<Item = &'a Arc<LiveInode>>) -> Self {
        let inodes = in_order(inodes);
        let changing = inodes.iter().map(|live| live.changing.lock()).collect();
        let flushing = inodes.iter().map(|live| live.flushing.lock()).collect();
        Self { _changing: changing, _flushing: flushing }
    }
}

/// The states of several inodes, locked in order.
pub(crate) struct LockedInodes<'a> {
    guards: Vec<StateGuard<'a>>,
}

/// One of several inodes whose states are locked.
#[derive(Clone, Copy)]
pub(crate) struct LockedInode<'a> {
    live: &'a Arc<LiveInode>,
    /// Where its state is among those that were locked with it.
    place: usize,
}

impl<'a> LockedInodes<'a> {
    /// Locks inodes, some of which may be given twice.
    pub(crate) fn new<const N: usize>(
        inodes: [&'a Arc<LiveInode>; N],
    ) -> (Self, [LockedInode<'a>; N]) {
        let locked = in_order(inodes);
        let before = |live: &LiveInode| locked.partition_point(|other| other.id() < live.id());
        let places = inodes.map(|live| LockedInode { live, place: before(live) });
        (Self { guards: locked.into_iter().map(|live| live.write()).collect() }, places)
    }

    /// The state of one of them.
    pub(crate) fn of(&mut self, inode: LockedInode<'_>) -> &mut InodeState {
        &mut self.guards[inode.place]
    }
}

impl Deref for LockedInode<'_> {
    type Target = Arc<LiveInode>;

    fn deref(&self) -> &Arc<LiveInode> {
        self.live
    }
}

/// The inodes by subvolume and number, each once.
fn in_order<'a>(inodes: impl IntoIterator<Item = &'a Arc<LiveInode>>) -> Vec<&'a Arc<LiveInode>> {
    let mut inodes: Vec<&Arc<LiveInode>> = inodes.into_iter().collect();
    inodes.sort_unstable_by_key(|live| live.id());
    inodes.dedup_by_key(|live| live.id());
    inodes
}
