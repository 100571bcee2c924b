//! The index items that one directory has queued, and the units of space that they reserve.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::node::ITEM_HEADER_SIZE;

use crate::settings::tuning::Reserve;

/// Index items to be inserted into a directory, and to be deleted from it, by index. No item is
/// both.
#[derive(Debug)]
pub(crate) struct IndexQueue {
    insertions: BTreeMap<u64, Box<[u8]>>,
    deletions: BTreeSet<u64>,
    leaves: Leaves,
}

/// How many leaves the insertions take: consecutive items fill one leaf after the other, whatever
/// lies between their indexes.
#[derive(Debug)]
struct Leaves {
    reserve: Reserve,
    /// Bytes of items and their headers that a leaf takes.
    capacity_bytes: usize,
    /// Units that are kept.
    reservations: u64,
    /// What the last leaf has so far.
    batch_bytes: usize,
}

impl IndexQueue {
    pub(crate) fn new(capacity_bytes: usize, reserve: Reserve) -> Self {
        Self {
            insertions: BTreeMap::new(),
            deletions: BTreeSet::new(),
            leaves: Leaves { reserve, capacity_bytes, reservations: 0, batch_bytes: 0 },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.insertions.is_empty() && self.deletions.is_empty()
    }

    /// Items that are queued.
    pub(crate) fn len(&self) -> usize {
        self.insertions.len() + self.deletions.len()
    }

    /// Units of space that are reserved for what is queued.
    pub(crate) fn reservations(&self) -> u64 {
        self.leaves.reservations + self.deletions.len() as u64
    }

    /// Whether inserting an item of so many bytes needs a reservation of its own.
    pub(crate) fn needs_reservation(&self, item_bytes: usize) -> bool {
        self.leaves.needs_reservation(weight(item_bytes))
    }

    /// Queues an item after the existing ones.
    pub(crate) fn insert(&mut self, index: u64, item: Box<[u8]>) {
        debug_assert!(self.insertions.last_key_value().is_none_or(|(last, _)| *last < index));
        debug_assert!(!self.deletions.contains(&index));
        self.leaves.add(weight(item.len()));
        self.insertions.insert(index, item);
    }

    /// Drops a queued insertion. Returns whether there was one.
    pub(crate) fn cancel(&mut self, index: u64) -> bool {
        let Some(item) = self.insertions.remove(&index) else { return false };
        self.leaves.cancel(weight(item.len()), self.insertions.is_empty());
        true
    }

    /// Queues the deletion of an item that is in the tree. It has a reservation of its own: only
    /// the tree knows which leaf it is in, and whether others are in it too.
    pub(crate) fn delete(&mut self, index: u64) {
        let is_new = self.deletions.insert(index);
        debug_assert!(is_new && !self.insertions.contains_key(&index));
    }

    pub(crate) fn is_deleted(&self, index: u64) -> bool {
        self.deletions.contains(&index)
    }

    /// The queued insertions with indexes from `first` to `last`.
    pub(crate) fn insertions(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.insertions.range(first..=last).map(|(index, item)| (*index, &**item))
    }

    /// The first insertions that fit into a leaf together; none if there are none left.
    pub(crate) fn batch(&self) -> Vec<(u64, &[u8])> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (index, item) in &self.insertions {
            bytes += weight(item.len());
            if bytes > self.leaves.capacity_bytes && !batch.is_empty() {
                break;
            }
            batch.push((*index, &**item));
        }
        batch
    }

    /// Drops the first `count` insertions, which are in the tree now: one leaf.
    pub(crate) fn inserted(&mut self, count: usize) {
        for _ in 0..count {
            self.insertions.pop_first();
        }
        self.leaves.flushed(count as u64, self.insertions.is_empty());
    }

    /// How many items are to be deleted.
    pub(crate) fn deletion_count(&self) -> usize {
        self.deletions.len()
    }

    /// The indexes of the items to be deleted.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = u64> {
        self.deletions.iter().copied()
    }

    /// Drops the deletions, which are done now.
    pub(crate) fn deleted(&mut self) {
        self.deletions.clear();
    }
}

impl Leaves {
    fn needs_reservation(&self, bytes: usize) -> bool {
        self.reserve == Reserve::PerItem || self.overflows(bytes)
    }

    /// Whether an item begins a leaf.
    fn overflows(&self, bytes: usize) -> bool {
        self.reservations == 0 || self.batch_bytes + bytes > self.capacity_bytes
    }

    fn add(&mut self, bytes: usize) {
        let needs_reservation = self.needs_reservation(bytes);
        self.batch_bytes = if self.overflows(bytes) { bytes } else { self.batch_bytes + bytes };
        self.reservations += u64::from(needs_reservation);
    }

    /// With one leaf, the item was in it. With more, it is unknown in which.
    fn cancel(&mut self, bytes: usize, is_empty: bool) {
        match self.reserve {
            _ if is_empty => self.clear(),
            Reserve::PerItem => self.reservations -= 1,
            Reserve::PerLeaf if self.reservations == 1 => self.batch_bytes -= bytes,
            Reserve::PerLeaf => {}
        }
    }

    fn flushed(&mut self, items: u64, is_empty: bool) {
        match self.reserve {
            _ if is_empty => self.clear(),
            Reserve::PerItem => self.reservations -= items,
            Reserve::PerLeaf => self.reservations -= 1,
        }
    }

    fn clear(&mut self) {
        (self.reservations, self.batch_bytes) = (0, 0);
    }
}

/// Bytes that an item takes in a leaf.
fn weight(item_bytes: usize) -> usize {
    ITEM_HEADER_SIZE + item_bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY_BYTES: usize = 400;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize),
        /// Removes the entry of this rank, whether it is queued or in the tree.
        Remove(usize),
        FlushBatch,
        FlushAll,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (30_usize..285).prop_map(Step::Insert),
            4 => any::<usize>().prop_map(Step::Remove),
            1 => Just(Step::FlushBatch),
            1 => Just(Step::FlushAll),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// A directory: what its tree has, what is queued, and what it should contain.
    struct Directory {
        queue: IndexQueue,
        tree: BTreeSet<u64>,
        model: BTreeSet<u64>,
        next: u64,
    }

    impl Directory {
        fn step(&mut self, step: &Step) {
            match step {
                Step::Insert(len) => {
                    let (needs_reservation, before) =
                        (self.queue.needs_reservation(*len), self.queue.reservations());
                    self.queue.insert(self.next, vec![0; *len].into());
                    assert_eq!(self.queue.reservations(), before + u64::from(needs_reservation));
                    self.model.insert(self.next);
                    self.next += 1;
                }
                Step::Remove(rank) => {
                    let len = self.model.len().max(1);
                    let Some(index) = self.model.iter().nth(rank % len).copied() else { return };
                    self.model.remove(&index);
                    if !self.queue.cancel(index) {
                        assert!(self.tree.contains(&index));
                        self.queue.delete(index);
                    }
                }
                Step::FlushBatch => self.flush_batch(),
                Step::FlushAll => {
                    while self.queue.insertions(0, u64::MAX).next().is_some() {
                        self.flush_batch();
                    }
                    for index in self.queue.deletions().collect::<Vec<_>>() {
                        assert!(self.tree.remove(&index));
                    }
                    self.queue.deleted();
                    assert!(self.queue.is_empty());
                    assert_eq!(self.queue.reservations(), 0);
                    assert_eq!(self.tree, self.model);
                }
            }
        }

        fn flush_batch(&mut self) {
            let batch: Vec<u64> = self.queue.batch().iter().map(|(index, _)| *index).collect();
            if !batch.is_empty() {
                self.tree.extend(&batch);
                self.queue.inserted(batch.len());
            }
        }

        /// Leaves that flushing the queue would take.
        fn leaves(&self) -> u64 {
            let (mut leaves, mut bytes) = (0, CAPACITY_BYTES);
            for (_, item) in self.queue.insertions(0, u64::MAX) {
                bytes += weight(item.len());
                if bytes > CAPACITY_BYTES {
                    (leaves, bytes) = (leaves + 1, weight(item.len()));
                }
            }
            leaves
        }
    }

    proptest! {
        /// The queue and the tree together are what the directory should contain; there is always a
        /// reservation for every leaf that will be touched, and none is left at the end.
        #[test]
        fn queue_and_tree_are_a_set(steps in steps(), per_item in any::<bool>()) {
            let reserve = if per_item { Reserve::PerItem } else { Reserve::PerLeaf };
            let queue = IndexQueue::new(CAPACITY_BYTES, reserve);
            let (tree, model) = (BTreeSet::new(), BTreeSet::new());
            let mut directory = Directory { queue, tree, model, next: 2 };
            for step in steps.iter().chain([&Step::FlushAll]) {
                directory.step(step);
                let queue = &directory.queue;
                let mut seen: BTreeSet<u64> =
                    directory.tree.iter().copied().filter(|index| !queue.is_deleted(*index)).collect();
                for (index, _) in queue.insertions(0, u64::MAX) {
                    prop_assert!(seen.insert(index), "{} is there twice", index);
                }
                prop_assert_eq!(&seen, &directory.model);
                let deletions = queue.deletions().count() as u64;
                let insertions = queue.reservations() - deletions;
                prop_assert!(insertions >= directory.leaves());
                if per_item {
                    prop_assert_eq!(queue.reservations(), queue.len() as u64);
                }
            }
        }
    }

    #[test]
    fn a_unit_is_kept_by_the_first_item_of_each_leaf() {
        let mut queue = IndexQueue::new(CAPACITY_BYTES, Reserve::PerLeaf);
        for index in 2..10 {
            // Each weighs 100 bytes: four fill a leaf.
            queue.insert(index, vec![0; 100 - ITEM_HEADER_SIZE].into());
            assert_eq!(queue.reservations(), (index - 2) / 4 + 1);
        }
        // It is unknown in which leaf it was, so that there is no room for another.
        assert!(queue.cancel(3));
        assert!(queue.needs_reservation(100 - ITEM_HEADER_SIZE));
        assert_eq!(queue.batch().len(), 4);
        queue.inserted(4);
        assert_eq!(queue.reservations(), 1);
        assert!(queue.cancel(8));
        assert!(!queue.needs_reservation(100 - ITEM_HEADER_SIZE));
        assert!(queue.cancel(9) && queue.cancel(7) && !queue.cancel(7));
        assert_eq!(queue.reservations(), 0);
    }
}
