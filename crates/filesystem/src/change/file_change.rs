//! A change of the data of files.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use larder_locks::RankedWriteGuard;
use larder_locks::rank::READING;
use larder_transaction::Handle;

use crate::cache::reservation::DataReservation;
use crate::change::changeable::Changeable;
use crate::change::locks::{Changing, Flushing, Still};
use crate::changed::{Changed, apply};
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::extents::items::FileExtents;
use crate::live::inode::{InodeState, LiveInode, StateGuard};

/// Files that are being changed in the running transaction. `L` says which locks keep other threads
/// away.
pub(crate) struct FileChange<'a, L> {
    core: &'a Core,
    writer: &'a Writer,
    handle: Handle<'a>,
    locks: L,
    /// Moves to the first file that takes it, and otherwise stays until the end.
    reservation: Cell<Option<DataReservation>>,
}

/// One of the files of a change, with its state locked.
pub(crate) struct LockedFile<'c, 'a, L> {
    change: &'c FileChange<'a, L>,
    live: &'a Arc<LiveInode>,
    state: StateGuard<'a>,
}

/// One of the files of a change that keeps all other threads away.
pub(crate) type StillFile<'c, 'a> = LockedFile<'c, 'a, Still<'a>>;

impl<'a> FileChange<'a, Still<'a>> {
    /// Begins to change a file: no other thread changes it or writes it back. The caller reserved
    /// space before, since reserving may wait for a commit.
    ///
    /// # Errors
    /// `EROFS`.
    pub(crate) fn start(file: Changeable<'a>, reservation: DataReservation) -> Result<Self> {
        Self::start_with(file, [], reservation)
    }

    /// Like [`start`](Self::start), and keeps other threads away from `others`, too, which may be
    /// the same file.
    pub(crate) fn start_with<const N: usize>(
        file: Changeable<'a>,
        others: [&'a Arc<LiveInode>; N],
        reservation: DataReservation,
    ) -> Result<Self> {
        let locks = Still::new(others.into_iter().chain([file.live]));
        let change = Self::join(file.core, locks, Some(reservation))?;
        file.subvolume.check_writable()?;
        Ok(change)
    }
}

impl<'a> FileChange<'a, Changing<'a>> {
    /// Begins to write to a file, which other threads may write back meanwhile.
    pub(crate) fn start_writing(
        core: &'a Core,
        file: &'a LiveInode,
        reservation: DataReservation,
    ) -> Result<Self> {
        Self::join(core, Changing::new(file), Some(reservation))
    }
}

impl<'a> FileChange<'a, Flushing<'a>> {
    /// Begins to write a file back. Its space was reserved when its data became dirty: a commit
    /// that needs the data in the trees must not wait for space.
    pub(crate) fn start_flushing(core: &'a Core, file: &'a LiveInode) -> Result<Self> {
        Self::join(core, Flushing::new(file), None)
    }
}

impl<'a, L> FileChange<'a, L> {
    fn join(core: &'a Core, locks: L, reservation: Option<DataReservation>) -> Result<Self> {
        let writer = core.writer()?;
        let handle = writer.manager.join()?;
        Ok(Self { core, writer, handle, locks, reservation: Cell::new(reservation) })
    }

    pub(crate) fn handle(&self) -> &Handle<'a> {
        &self.handle
    }

    /// Locks the state of one of the files.
    pub(crate) fn lock<'c>(&'c self, live: &'a Arc<LiveInode>) -> LockedFile<'c, 'a, L> {
        LockedFile { change: self, live, state: live.write() }
    }

    /// Leaves the transaction, and then unlocks the files.
    pub(crate) fn end(self) -> Result<()> {
        let Self { handle, locks, .. } = self;
        let ended = handle.end();
        drop(locks);
        Ok(ended?)
    }
}

impl<'c, 'a, L> LockedFile<'c, 'a, L> {
    pub(crate) fn core(&self) -> &'c Core {
        self.change.core
    }

    pub(crate) fn writer(&self) -> &'c Writer {
        self.change.writer
    }

    pub(crate) fn handle(&self) -> &'c Handle<'a> {
        &self.change.handle
    }

    pub(crate) fn live(&self) -> &'a Arc<LiveInode> {
        self.live
    }

    /// The file extents, to be changed.
    pub(crate) fn extents(&self) -> FileExtents<'c> {
        FileExtents::of(self.live, self.handle(), self.core().sectorsize())
    }

    /// Adds the space that was reserved for the change to that for writing the file back.
    pub(crate) fn absorb_reservation(&mut self) {
        if let Some(reservation) = self.change.reservation.take() {
            self.pages.reserve(reservation);
        }
    }

    /// Runs `work` while the state is not locked.
    pub(crate) fn unlocked<T>(&mut self, act: impl FnOnce() -> T) -> T {
        self.state.unlocked(act)
    }

    /// Waits until no thread reads the extents of the file, and makes later readers wait.
    pub(crate) fn exclude_readers(&mut self) -> RankedWriteGuard<'a, (), READING> {
        let live = self.live;
        self.unlocked(|| live.reading.write())
    }

    /// Updates the count of the file's dirty data.
    pub(crate) fn note_dirty(&self) {
        self.writer().dirty.insert(self.live, &self.state);
    }

    /// Runs changes of the trees. An error leaves something half done, and aborts the transaction.
    pub(crate) fn apply<T>(
        &mut self,
        change: impl FnOnce(&mut InodeState) -> Changed<T>,
    ) -> Changed<T> {
        let handle = self.handle();
        apply(handle, || change(&mut self.state))
    }
}

impl<L> Deref for LockedFile<'_, '_, L> {
    type Target = InodeState;

    fn deref(&self) -> &InodeState {
        &self.state
    }
}

impl<L> DerefMut for LockedFile<'_, '_, L> {
    fn deref_mut(&mut self) -> &mut InodeState {
        &mut self.state
    }
}
