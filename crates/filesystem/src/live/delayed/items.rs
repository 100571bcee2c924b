//! Queueing and dequeueing items of an inode.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::item::InodeItem;
use larder_format::{ItemType, Key};
use larder_transaction::space::Priority;
use larder_transaction::{Error, Items, TreeItems};
use zerocopy::IntoBytes;

use crate::changed::Changed;
use crate::live::delayed::queue::IndexQueue;
use crate::live::delayed::queued::Queued;
use crate::live::delayed::reservation::ReservedItems;
use crate::live::delayed::table::{DelayedInodes, MOST_DELETIONS, MOST_INSERTIONS};
use crate::live::inode::{InodeState, LiveInode};
use crate::settings::tuning::Queue;

impl LiveInode {
    /// Notes that the item of `state`, which is this inode's, is to go into the tree.
    pub(crate) fn put_item(self: &Arc<Self>, state: &InodeState) -> Changed<()> {
        let mut slot = self.delayed.lock();
        let needs_reservation = |queued: &Queued| queued.item.is_none();
        if self.is_unlinked() {
            debug_assert!(slot.is_none());
        } else if let Some(queued) = self.queue(&mut slot, needs_reservation, Priority::Normal) {
            if queued.item.replace(state.item).is_none() {
                self.delayed_inodes().items.fetch_add(1, Relaxed);
            }
            return Ok(());
        }
        self.write_item(&state.item)
    }

    /// Queues an index item for this directory, after all existing ones.
    pub(crate) fn insert_index(self: &Arc<Self>, index: u64, item: Vec<u8>) -> Changed<()> {
        let mut slot = self.delayed.lock();
        let needs_reservation = |queued: &Queued| queued.index.needs_reservation(item.len());
        let Some(queued) = self.queue(&mut slot, needs_reservation, Priority::Normal) else {
            return Ok(self.tree().insert(self.index_key(index), &item)?);
        };
        queued.index.insert(index, item.into());
        self.delayed_inodes().items.fetch_add(1, Relaxed);
        if queued.index.len() >= MOST_INSERTIONS { self.flush_slot(&mut slot) } else { Ok(()) }
    }

    /// Removes an index item from this directory.
    pub(crate) fn remove_index(self: &Arc<Self>, index: u64) -> Changed<()> {
        let mut slot = self.delayed.lock();
        if let Some(queued) = slot.as_deref_mut()
            && queued.index.cancel(index)
        {
            self.delayed_inodes().items.fetch_sub(1, Relaxed);
            self.tidy(&mut slot);
            return Ok(());
        }
        let priority = Priority::of_deletion(self.tree().last_snapshot());
        let Some(queued) = self.queue(&mut slot, |_| true, priority) else {
            return TreeItems::new(self.tree().clone()).remove(self.index_key(index));
        };
        queued.index.delete(index);
        self.delayed_inodes().items.fetch_add(1, Relaxed);
        if queued.index.deletion_count() >= MOST_DELETIONS {
            return self.flush_slot(&mut slot);
        }
        Ok(())
    }

    /// Inserts the item of `state`, which is this inode's, and all that is queued into the tree.
    pub(crate) fn write_items(&self, state: &InodeState) -> Changed<()> {
        let mut slot = self.delayed.lock();
        if let Some(queued) = slot.as_deref_mut()
            && let Some(item) = &mut queued.item
        {
            *item = state.item;
            return self.flush_slot(&mut slot);
        }
        self.flush_slot(&mut slot)?;
        self.write_item(&state.item)
    }

    /// Drops the queued item of an inode that is no directory: the inode is deleted, or its item is
    /// written at once.
    pub(crate) fn forget_delayed(&self) {
        let mut slot = self.delayed.lock();
        if let Some(queued) = slot.as_deref_mut()
            && queued.item.take().is_some()
        {
            self.delayed_inodes().items.fetch_sub(1, Relaxed);
        }
        self.tidy(&mut slot);
    }

    /// Drops all that is queued of this inode: its tree is about to go.
    pub(crate) fn discard_delayed(&self) {
        let mut slot = self.delayed.lock();
        let (shared, Some(mut queued)) = (self.delayed_inodes(), slot.take()) else { return };
        shared.items.fetch_sub(queued.len(), Relaxed);
        queued.reserved.shrink_to(0, &shared.reservations);
        shared.inodes.lock().remove(&self.id());
    }

    /// Inserts all that is queued of this inode into its tree.
    pub(crate) fn flush_delayed(&self) -> Changed<()> {
        self.flush_slot(&mut self.delayed.lock())
    }

    /// The queue, with space reserved for one more item. None if there is no space, or nothing is
    /// to be queued.
    fn queue<'q>(
        self: &Arc<Self>,
        slot: &'q mut Option<Box<Queued>>,
        needs_reservation: impl FnOnce(&Queued) -> bool,
        priority: Priority,
    ) -> Option<&'q mut Queued> {
        let shared = self.delayed_inodes();
        if shared.tuning.queue == Queue::Direct {
            return None;
        }
        let needs_reservation = slot.as_deref().is_none_or(needs_reservation);
        let reservation =
            if needs_reservation { Some(shared.reservations.reservation(priority)?) } else { None };
        let queued = slot.get_or_insert_with(|| {
            shared.inodes.lock().insert(self.id(), self.clone());
            Box::new(Queued::new(shared))
        });
        if let Some(reservation) = reservation {
            queued.reserved.add(reservation);
        }
        Some(queued)
    }

    fn flush_slot(&self, slot: &mut Option<Box<Queued>>) -> Changed<()> {
        let Some(queued) = slot.as_deref_mut() else { return Ok(()) };
        let (shared, before) = (self.delayed_inodes(), queued.len());
        if let Some(item) = queued.item {
            self.write_item(&item)?;
            queued.item = None;
        }
        self.delete_indexes(queued)?;
        self.insert_indexes(queued, shared)?;
        shared.items.fetch_sub(before, Relaxed);
        shared.flushed_items.fetch_add(before, Relaxed);
        shared.flushes.fetch_add(1, Relaxed);
        self.tidy(slot);
        Ok(())
    }

    fn delete_indexes(&self, queued: &mut Queued) -> Changed<()> {
        let keys: Vec<Key> = queued.index.deletions().map(|index| self.index_key(index)).collect();
        if self.tree().delete_batch(&keys)? < keys.len() as u64 {
            return Err(Error::MissingItem { tree: self.tree().id(), key: keys[0] });
        }
        queued.index.deleted();
        Ok(())
    }

    /// Each batch fills a leaf.
    fn insert_indexes(&self, queued: &mut Queued, shared: &DelayedInodes) -> Changed<()> {
        loop {
            let batch = queued.index.batch();
            let count = batch.len();
            if count == 0 {
                return Ok(());
            }
            let items: Vec<(Key, &[u8])> =
                batch.into_iter().map(|(index, item)| (self.index_key(index), item)).collect();
            self.tree().insert_batch(&items)?;
            queued.index.inserted(count);
            queued.reserved.shrink_to(queued.reservations(), &shared.reservations);
        }
    }

    /// Gives unneeded space back, and leaves the delayed inodes once nothing is queued.
    fn tidy(&self, slot: &mut Option<Box<Queued>>) {
        let (shared, Some(queued)) = (self.delayed_inodes(), slot.as_deref_mut()) else { return };
        queued.reserved.shrink_to(queued.reservations(), &shared.reservations);
        if queued.is_empty() {
            *slot = None;
            shared.inodes.lock().remove(&self.id());
        }
    }

    fn write_item(&self, item: &InodeItem) -> Changed<()> {
        let key = self.key(ItemType::INODE_ITEM, 0);
        Ok(self.tree().modify(key, |data| {
            let len = data.len().min(size_of::<InodeItem>());
            data[..len].copy_from_slice(&item.as_bytes()[..len]);
        })?)
    }

    pub(crate) fn index_key(&self, index: u64) -> Key {
        self.key(ItemType::DIR_INDEX, index)
    }
}

impl Queued {
    fn new(shared: &DelayedInodes) -> Self {
        let index = IndexQueue::new(shared.leaf_bytes, shared.tuning.reserve);
        Self { item: None, index, reserved: ReservedItems::default() }
    }
}
