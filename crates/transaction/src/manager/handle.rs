//! A handle: the right to change trees in the running transaction.

use larder_format::Logical;

use super::TransactionManager;
use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::data_references::{DataExtent, DataOwner};
use super::join_gate::Joined;
use crate::error::{Error, Result};
use crate::quota::QuotaReservation;
use crate::space::Reservation;

/// With more delayed references than these, a thread that ends its handle runs some.
const MANY_REFERENCES: usize = 2048;
/// With more than these, it waits for its turn to run some.
const TOO_MANY_REFERENCES: usize = 16 * MANY_REFERENCES;

/// The right to change trees in the running transaction. No commit ends the transaction before the handle ends.
/// A handle belongs to the thread that joined; a thread has at most one of a manager.
#[derive(Debug)]
pub struct Handle<'m> {
    manager: &'m TransactionManager,
    reservation: Option<Reservation>,
    quota: Option<QuotaReservation>,
    _unwinding: AbortOnUnwind<'m>,
    /// Dropped last.
    _joined: Joined<'m>,
}

impl TransactionManager {
    /// Joins the running transaction with space that the caller reserved before.
    pub fn start_with(&self, reservation: Reservation) -> Result<Handle<'_>> {
        Ok(self.join()?.with(reservation))
    }

    /// Joins the running transaction without reserved space: to run what was queued, or to look.
    ///
    /// # Panics
    /// If this thread has a handle already.
    pub fn join(&self) -> Result<Handle<'_>> {
        self.timer().wait_for_devices();
        let joined = self.gate.join();
        if joined.is_first {
            self.note_work();
        }
        self.check_alive()?;
        Ok(Handle {
            manager: self,
            reservation: None,
            quota: None,
            _unwinding: AbortOnUnwind(&self.abort),
            _joined: joined,
        })
    }
}

impl Handle<'_> {
    /// The same handle with reserved space.
    pub(super) fn with(self, reservation: Reservation) -> Self {
        Self { reservation: Some(reservation), ..self }
    }

    /// The transaction.
    pub fn generation(&self) -> u64 {
        self.manager.generation()
    }

    /// The space that is reserved for this handle; the caller may split, grow and shrink it.
    pub fn reservation(&mut self) -> Option<&mut Reservation> {
        self.reservation.as_mut()
    }

    /// Keeps a reservation within the limits of quota groups until this handle ends. By then the groups count what
    /// the handle added.
    pub fn keep_quota(&mut self, reservation: Option<QuotaReservation>) {
        self.quota = reservation;
    }

    /// Gives the transaction up: a change by this handle is half done and cannot be completed.
    pub fn abort(&self, reason: Error) {
        self.manager.abort(reason);
    }

    /// The first reference of a file to data at a place that was just allocated with
    /// [`Space::allocate_data`](crate::space::Space::allocate_data).
    pub fn add_new_data(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.add_new_data(extent.into(), file);
    }

    /// One more reference of a file to data.
    pub fn add_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.change_data(extent.into(), file, 1);
    }

    /// One reference less of a file to data, which goes with the last.
    ///
    /// Comes *after* the file extent item was removed or changed: a leaf that snapshots share is
    /// copied by that, and from then on what it refers to counts for itself.
    pub fn drop_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.change_data(extent.into(), file, -1);
    }

    /// Whether only this file refers to data. A snapshot that shares the leaf which refers to the data is not seen:
    /// a file extent item that is not younger than its tree's last snapshot may be shared so.
    ///
    /// The answer holds as long as the caller keeps others from changing the file.
    pub fn is_sole_owner(&self, extent: DataExtent, file: DataOwner) -> Result<bool> {
        self.manager.tree_space.has_all_references(extent.into(), file.into())
    }

    /// Enters the checksums of the sectors from `start` on, in place of any that are there.
    pub fn insert_checksums(&self, start: Logical, sums: &[u8]) -> Result<()> {
        self.manager.bookkeeping.insert_checksums(start, sums)
    }

    /// Leaves the transaction. If many delayed references wait, this thread runs some first, unless another does so
    /// and keeps up.
    pub fn end(self) -> Result<()> {
        let manager = self.manager;
        loop {
            let waiting = manager.tree_space.refs.len();
            let is_in_hand = || manager.bookkeeping.is_busy();
            if waiting <= MANY_REFERENCES || (waiting <= TOO_MANY_REFERENCES && is_in_hand()) {
                return Ok(());
            }
            let ran = manager.bookkeeping.run_references(BATCH, manager.generation());
            if ran.inspect_err(|error| manager.abort(error.clone()))? == 0 {
                return Ok(());
            }
        }
    }
}
