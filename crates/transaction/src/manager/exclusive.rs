//! The right to change trees while no other thread does.

use larder_format::item::RootItem;

use super::TransactionManager;
use super::abort::AbortOnUnwind;
use super::join_gate::Quiesced;

/// The right to change trees while no other thread does: the join gate is quiesced as long as this lives.
#[derive(Debug)]
pub struct Exclusive<'m> {
    manager: &'m TransactionManager,
    _unwinding: AbortOnUnwind<'m>,
    quiesced: Quiesced<'m>,
}

impl TransactionManager {
    /// Waits until every thread has ended its handle, and keeps others from joining until the result is
    /// dropped.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](super::Handle).
    pub fn quiesce(&self) -> Exclusive<'_> {
        self.note_work();
        self.quiesce_for_commit()
    }

    /// As [`quiesce`](Self::quiesce), without a reason for another commit.
    pub(super) fn quiesce_for_commit(&self) -> Exclusive<'_> {
        let quiesced = self.gate.quiesce();
        Exclusive { manager: self, _unwinding: AbortOnUnwind(&self.abort), quiesced }
    }
}

impl<'m> Exclusive<'m> {
    /// The manager whose join gate is quiesced.
    pub fn manager(&self) -> &'m TransactionManager {
        self.manager
    }

    /// Changes the root item of a tree that is open; the next commit writes it. Returns what `change`
    /// returns, or `None` if the tree is not open.
    pub fn change_root_item<T>(
        &self,
        tree: u64,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Option<T> {
        self.manager.roots.lock().change(tree, change)
    }

    /// Notes that the commit in progress has taken all changes: the next join is a reason for another.
    pub(super) fn forget_joins(&self) {
        self.quiesced.forget_joins();
    }
}
