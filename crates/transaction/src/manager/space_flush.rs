//! Space flushing: the steps that free space, in order, before a caller gets ENOSPC.
//!
//! # Invariants
//! - A caller gets ENOSPC only after every thread that had joined has left, after every deletion
//!   that had begun when the caller asked has ended, and after a commit that freed the space that
//!   both gave up. Readers keep no state that withholds space.
//! - The caller has no handle. It is no deletion itself, except with [`Priority::Cleaning`]. It has
//!   nothing locked that a commit or a deletion needs. So everything that it waits for ends.
//! - Callers that ask for one kind with one priority and find no space take tickets. Freed space
//!   goes to the first of them; no caller overtakes another.
//! - A deletion waits for commits and for tickets of other deletions, never for the end of a
//!   deletion.

use std::sync::atomic::Ordering::Relaxed;

use super::TransactionManager;
use super::handle::Handle;
use crate::error::{Error, Result};
use crate::space::{Priority, Reservation, SpaceKind};

/// A caller waits for at most so many steps of deletions before a commit frees their space. It
/// begins with one step, and doubles.
const MOST_STEPS: u64 = 64;

/// The steps that free space, the cheapest first.
#[derive(Clone, Copy)]
enum FlushState {
    /// Queued changes go into the trees, and give back the surplus of their reservations.
    FlushQueued,
    /// Delayed references are run: they are space that is spoken for, mostly more than it takes.
    RunReferences,
    /// Every thread that has joined leaves, and gives back its reservation.
    WaitForHandles,
    /// Deletions drop blocks and data.
    CleanDeleted,
    /// A commit frees them.
    Commit,
    /// States that readers keep are given up.
    GiveUpKeptStates,
    /// Block groups that are empty now go back to the devices, for other kinds.
    RemoveEmptyGroups,
}

impl FlushState {
    const ALL: [Self; 7] = [
        Self::FlushQueued,
        Self::RunReferences,
        Self::WaitForHandles,
        Self::CleanDeleted,
        Self::Commit,
        Self::GiveUpKeptStates,
        Self::RemoveEmptyGroups,
    ];
}

/// The space that a caller asks for.
#[derive(Clone, Copy)]
struct Request {
    kind: SpaceKind,
    len_bytes: u64,
    priority: Priority,
}

impl TransactionManager {
    /// Reserves `len_bytes` of `kind`. If that much is not free, this flushes queued changes, waits
    /// for other threads' handles and for deletions, and commits, until it is.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if none of that freed enough.
    ///
    /// # Panics
    /// If there is not enough space and this thread has a [`Handle`].
    pub fn reserve(
        &self,
        kind: SpaceKind,
        len_bytes: u64,
        priority: Priority,
    ) -> Result<Reservation> {
        self.check_alive()?;
        let (queue, request) =
            (self.space_waiters.queue(kind, priority), Request { kind, len_bytes, priority });
        if queue.is_empty()
            && let Some(reservation) = self.try_request(request)?
        {
            return Ok(reservation);
        }
        let _ticket = queue.wait();
        self.flush_until_reserved(request)
    }

    /// Joins the running transaction with space reserved for inserting `items` items.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn start(&self, items: u64, priority: Priority) -> Result<Handle<'_>> {
        self.start_referring(items, 0, priority)
    }

    /// Like [`start`](Self::start), also with space for running `references` references to data
    /// that the caller adds or drops.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn start_referring(
        &self,
        items: u64,
        references: u64,
        priority: Priority,
    ) -> Result<Handle<'_>> {
        let space = self.space();
        let len_bytes = space.insertion_bytes(items) + space.reference_bytes(references);
        let kind = SpaceKind::Metadata;
        let (queue, request) =
            (self.space_waiters.queue(kind, priority), Request { kind, len_bytes, priority });
        // Reserved after joining, so that a thread which quiesces the gate knows that such
        // reservations are given back.
        let handle = self.join()?;
        if queue.is_empty()
            && let Some(reservation) = self.try_request(request)?
        {
            return Ok(handle.with(reservation));
        }
        drop(handle);
        let ticket = queue.wait();
        let reservation = self.flush_until_reserved(request)?;
        let handle = self.join()?.with(reservation);
        drop(ticket);
        Ok(handle)
    }

    fn try_request(&self, request: Request) -> Result<Option<Reservation>> {
        match self.space().try_reserve(request.kind, request.len_bytes, request.priority) {
            Ok(reservation) => Ok(Some(reservation)),
            Err(Error::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes through the flush states, again and again as long as there are deletions to wait for.
    fn flush_until_reserved(&self, request: Request) -> Result<Reservation> {
        let asked = self.space_waiters.cleanings.now();
        let (mut steps, mut were_cleaning) = (1, true);
        while were_cleaning {
            were_cleaning = false;
            for state in FlushState::ALL {
                if let Some(reservation) = self.try_request(request)? {
                    return Ok(reservation);
                }
                match state {
                    FlushState::FlushQueued => self.with_hook(|hook| hook.flush_queued())?,
                    FlushState::RunReferences => self.run_references_in_passing()?,
                    FlushState::WaitForHandles => drop(self.quiesce()),
                    FlushState::CleanDeleted if request.priority == Priority::Cleaning => {}
                    FlushState::CleanDeleted => {
                        self.with_hook(|hook| hook.clean_deleted())?;
                        were_cleaning = self.space_waiters.cleanings.wait(asked, steps);
                    }
                    FlushState::Commit => drop(self.commit()?),
                    FlushState::GiveUpKeptStates => self.space().give_up_kept_states()?,
                    FlushState::RemoveEmptyGroups => self.commit_empty_groups()?,
                }
            }
            steps = (2 * steps).min(MOST_STEPS);
        }
        let Request { kind, len_bytes, .. } = request;
        self.try_request(request)?.ok_or(Error::NoSpace { kind, len_bytes })
    }

    /// Commits if that removes block groups that the last commit left empty.
    fn commit_empty_groups(&self) -> Result<()> {
        if self.bookkeeping.has_empty_groups() {
            self.tree_space.is_changed.store(true, Relaxed);
            self.commit()?;
        }
        Ok(())
    }
}
