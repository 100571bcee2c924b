//! A handle: the right to change trees in the running transaction.

use larder_format::Logical;
use larder_format::objectid::FIRST_FREE;

use super::TransactionManager;
use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::door::Inside;
use crate::error::{Error, Result};
use crate::extent::Referrer;
use crate::quota::QuotaPromise;
use crate::refs::{ExtentKind, ExtentRef};
use crate::space::Reservation;
use crate::tree_items::TreeItems;

/// Delayed references beyond which whoever leaves runs some.
const MANY_REFERENCES: usize = 2048;
/// Beyond so many, whoever leaves waits for his turn to run some.
const TOO_MANY_REFERENCES: usize = 16 * MANY_REFERENCES;

/// The right to change trees in the running transaction, which cannot be committed meanwhile. Of
/// the thread that joined, which joins once at a time.
#[derive(Debug)]
pub struct Handle<'m> {
    manager: &'m TransactionManager,
    reservation: Option<Reservation>,
    within_limits: Option<QuotaPromise>,
    _unwinding: AbortOnUnwind<'m>,
    /// Dropped last.
    _inside: Inside<'m>,
}

impl TransactionManager {
    /// Joins the running transaction with room that was promised before.
    pub fn join_with(&self, reservation: Reservation) -> Result<Handle<'_>> {
        Ok(self.attach()?.with(reservation))
    }

    /// Joins the running transaction without any room: to run what was queued, or to look.
    pub fn attach(&self) -> Result<Handle<'_>> {
        self.accounting.alarm.wait_for_devices();
        let inside = self.door.enter();
        if inside.is_first {
            self.note_work();
        }
        self.check_alive()?;
        Ok(Handle {
            manager: self,
            reservation: None,
            within_limits: None,
            _unwinding: AbortOnUnwind(self),
            _inside: inside,
        })
    }
}

impl Handle<'_> {
    /// The same with room that was promised.
    pub(super) fn with(self, reservation: Reservation) -> Self {
        Self { reservation: Some(reservation), ..self }
    }

    /// The transaction.
    pub fn generation(&self) -> u64 {
        self.manager.generation()
    }

    /// What is promised to this handle; it can be split, grown and shrunk.
    pub fn reservation(&mut self) -> Option<&mut Reservation> {
        self.reservation.as_mut()
    }

    /// Keeps what was promised within the limits of quota groups until this handle ends: by then what it adds
    /// is counted.
    pub fn keep_within_limits(&mut self, promise: Option<QuotaPromise>) {
        self.within_limits = promise;
    }

    /// Gives the transaction up: what this handle changed is half done and cannot be completed.
    pub fn abort(&self, reason: Error) {
        self.manager.abort(reason);
    }

    /// The first reference of a file to data at a place that was just allocated with
    /// [`Space::allocate_data`](crate::space::Space::allocate_data).
    pub fn add_new_data(&self, extent: DataExtent, file: DataOwner) {
        self.manager.accounting.add_new_data(extent.into(), file);
    }

    /// One more reference of a file to data.
    pub fn add_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.accounting.change_data(extent.into(), file, 1);
    }

    /// One reference less of a file to data, which goes with the last.
    ///
    /// Comes *after* the file extent item was removed or changed: a leaf that snapshots share is
    /// copied by that, and from then on what it refers to counts for itself.
    pub fn drop_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.accounting.change_data(extent.into(), file, -1);
    }

    /// Whether nobody but this file refers to data. What snapshots share is not seen where they share
    /// the leaf that refers to it: a file extent item that is not younger than its tree's last snapshot
    /// may be shared so.
    ///
    /// The answer holds as long as the caller keeps others from changing the file.
    pub fn is_sole_owner(&self, extent: DataExtent, file: DataOwner) -> Result<bool> {
        self.manager.accounting.has_all_references(extent.into(), file.into())
    }

    /// Enters the checksums of the sectors from `start` on, in place of any that are there.
    pub fn insert_checksums(&self, start: Logical, sums: &[u8]) -> Result<()> {
        let _changing = self.manager.checksums.lock();
        let mut tree = TreeItems::new(self.manager.trees.csum.clone());
        self.manager.checksum_items().insert(&mut tree, start, sums)
    }

    /// Leaves the transaction, after a share of bookkeeping if much has piled up. Whoever finds somebody at it leaves it
    /// to him, unless he falls behind.
    pub fn end(self) -> Result<()> {
        let manager = self.manager;
        loop {
            let waiting = manager.accounting.refs.len();
            let is_somebody_at_it = || manager.bookkeeping.is_locked();
            if waiting <= MANY_REFERENCES || (waiting <= TOO_MANY_REFERENCES && is_somebody_at_it())
            {
                return Ok(());
            }
            let ran = manager.run_some_references(BATCH);
            if ran.inspect_err(|error| manager.abort(error.clone()))? == 0 {
                return Ok(());
            }
        }
    }
}

/// An extent of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// Where it starts.
    pub logical: Logical,
    /// Its length on disk in bytes.
    pub len_bytes: u64,
}

impl From<DataExtent> for ExtentRef {
    fn from(DataExtent { logical, len_bytes }: DataExtent) -> Self {
        Self { logical, len_bytes, kind: ExtentKind::Data }
    }
}

/// What a file extent says about who refers to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOwner {
    /// Id of the subvolume.
    pub root: u64,
    /// Number of the inode.
    pub inode: u64,
    /// File offset minus offset in the extent (wrapping).
    pub offset: u64,
}

impl From<DataOwner> for Referrer {
    fn from(DataOwner { root, inode, offset }: DataOwner) -> Self {
        debug_assert!(inode >= FIRST_FREE);
        Self::File { root, inode, offset }
    }
}
