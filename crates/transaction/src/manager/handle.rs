//! A handle: the right to change trees in the running transaction.

use std::sync::Arc;

use larder_btree::LiveTree;
use larder_format::Logical;
use larder_format::item::RootItem;

use super::TransactionManager;
use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::data_references::{DataExtent, DataOwner};
use super::join_gate::Joined;
use crate::error::{Error, Result};
use crate::quota::QuotaReservation;
use crate::space::Reservation;

/// With more insertions by delayed references, a thread that ends its handle runs some.
const MANY_INSERTIONS: u64 = 4096;
/// With more, it waits for its turn to run some.
const TOO_MANY_INSERTIONS: u64 = 16 * MANY_INSERTIONS;

/// The right to change trees in the running transaction. No commit ends the transaction before the
/// handle ends. A handle belongs to the thread that joined; a thread has at most one of a manager.
#[derive(Debug)]
pub struct Handle<'m> {
    manager: &'m TransactionManager,
    reservation: Option<Reservation>,
    quota: Option<QuotaReservation>,
    _unwinding: AbortOnUnwind<'m>,
    /// Dropped last.
    _joined: Joined<'m>,
}

impl<'m> Handle<'m> {
    /// Joins the running transaction.
    pub(super) fn new(manager: &'m TransactionManager) -> Result<Self> {
        manager.timer().wait_for_devices();
        let joined = manager.gate.join();
        if joined.is_first {
            manager.note_work();
        }
        manager.check_alive()?;
        let unwinding = AbortOnUnwind(&manager.abort);
        Ok(Self { manager, reservation: None, quota: None, _unwinding: unwinding, _joined: joined })
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

    /// Keeps a reservation within the limits of quota groups until this handle ends. By then the
    /// groups count what the handle added.
    pub fn keep_quota(&mut self, reservation: Option<QuotaReservation>) {
        self.quota = reservation;
    }

    /// Aborts the transaction: a change by this handle is half done and cannot be completed.
    pub fn abort(&self, reason: Error) {
        self.manager.abort(reason);
    }

    /// Changes the root item of a tree that is open; the next commit writes it. Returns the result
    /// of `change`, or `None` if the tree is not open.
    pub fn change_root_item<T>(
        &self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.manager.trees.change_root_item(tree, change)
    }

    /// Creates an empty tree with the root item `item`, in which this sets the address of the root.
    /// The next commit writes the item.
    ///
    /// # Errors
    /// [`Error::ItemExists`] if there is a tree with this id.
    pub fn create_tree(&self, id: u64, item: &RootItem) -> Result<Arc<LiveTree>> {
        self.manager.trees.create(id, item)
    }

    /// Adds the first reference of a file to data that was just allocated with
    /// [`Space::allocate_data`](crate::space::Space::allocate_data).
    pub fn add_new_data(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.add_new_data(extent.into(), file);
    }

    /// Adds a reference of a file to data.
    pub fn add_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.change_data(extent.into(), file, 1);
    }

    /// Drops a reference of a file to data, which is freed with the last.
    ///
    /// Call this *after* removing or changing the file extent item: that copies a leaf which
    /// snapshots share, and from then on the references of the copy count separately.
    pub fn drop_data_reference(&self, extent: DataExtent, file: DataOwner) {
        self.manager.tree_space.change_data(extent.into(), file, -1);
    }

    /// Whether only this file refers to data. This does not see a snapshot that shares the leaf
    /// with the reference: a file extent item that is not newer than its tree's last snapshot may
    /// be shared so.
    ///
    /// The answer holds as long as the caller keeps other threads from changing the file.
    pub fn is_sole_owner(&self, extent: DataExtent, file: DataOwner) -> Result<bool> {
        self.manager.tree_space.has_all_references(extent.into(), file.into())
    }

    /// Inserts the checksums of the sectors from `start` on, in place of existing ones.
    pub fn insert_checksums(&self, start: Logical, sums: &[u8]) -> Result<()> {
        self.manager.bookkeeping.insert_checksums(start, sums)
    }

    /// Leaves the transaction. If many delayed references wait, this thread runs some first, unless
    /// another does so and keeps up. If space is short, it runs all.
    pub fn end(mut self) -> Result<()> {
        self.reservation = None;
        let manager = self.manager;
        loop {
            let waiting = manager.tree_space.refs.insertions();
            let is_in_hand = || manager.bookkeeping.is_busy();
            let is_few =
                waiting <= MANY_INSERTIONS || (waiting <= TOO_MANY_INSERTIONS && is_in_hand());
            if waiting == 0 || (is_few && !manager.space().owes_too_much()) {
                return Ok(());
            }
            let ran = manager.bookkeeping.run_references(BATCH, manager.generation());
            if ran.inspect_err(|error| manager.abort(error.clone()))? == 0 {
                return Ok(());
            }
        }
    }
}
