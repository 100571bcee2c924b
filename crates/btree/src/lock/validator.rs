//! Holds every thread to the lock order, in debug builds.
//!
//! A thread that waits for a lock while it holds one that comes later in the order panics, even if
//! no other thread waits. The message names the two places in the code. In release builds all of
//! this is empty.

use std::panic::Location;

use larder_format::Key;

/// Where a lock stands in the order.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "only the validator asks"))]
pub(crate) struct LockPlace {
    /// The tree.
    pub(crate) tree: u64,
    /// The level of the block; one more than any for the root pointer.
    pub(crate) level: u8,
    /// The first key of the block as its parent has it. It orders the blocks of a level.
    pub(crate) key: Key,
}

/// How a thread takes a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "only the validator asks"))]
pub(super) enum Attempt {
    /// By waiting for it.
    Wait,
    /// Only if it is free: that cannot be part of a deadlock.
    Try,
}

/// A lock that the thread holds, or waits for.
pub(super) struct LockRecord {
    #[cfg(debug_assertions)]
    id: u64,
    /// Among the locks of all kinds. The threads of a schedule share one thread.
    #[cfg(all(debug_assertions, not(feature = "shuttle")))]
    _held: larder_locks::Held,
}

#[cfg(not(debug_assertions))]
impl LockRecord {
    pub(super) fn new(_: LockPlace, _: Attempt, _: &'static Location<'static>) -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::{Cell, RefCell};

    use larder_format::objectid::EXTENT_TREE;

    use crate::lock::validator::{Attempt, Location, LockPlace, LockRecord};

    struct Entry {
        id: u64,
        place: LockPlace,
        site: &'static Location<'static>,
    }

    #[cfg(not(feature = "shuttle"))]
    use std::thread_local;

    #[cfg(feature = "shuttle")]
    use shuttle::thread_local;

    thread_local! {
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
        static NEXT_ID: Cell<u64> = const { Cell::new(0) };
    }

    impl LockRecord {
        pub(in crate::lock) fn new(
            place: LockPlace,
            attempt: Attempt,
            site: &'static Location<'static>,
        ) -> Self {
            let id = NEXT_ID.with(|next| next.replace(next.get() + 1));
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                if attempt == Attempt::Wait
                    && let Some(later) = held.iter().find(|entry| !precedes(entry.place, place))
                {
                    panic!(
                        "lock order violated: {place:?} is taken at {site} while {:?}, taken at {}, is held",
                        later.place, later.site,
                    );
                }
                held.push(Entry { id, place, site });
            });
            Self {
                id,
                #[cfg(not(feature = "shuttle"))]
                _held: held(place.tree, attempt),
            }
        }
    }

    /// Notes the lock among those of all kinds.
    #[cfg(not(feature = "shuttle"))]
    fn held(tree: u64, attempt: Attempt) -> larder_locks::Held {
        use larder_format::objectid::{
            BLOCK_GROUP_TREE, CHUNK_TREE, CSUM_TREE, DEV_TREE, FREE_SPACE_TREE,
        };
        use larder_locks::Held;
        use larder_locks::rank::{BOOKKEEPING_BLOCKS, TREE_BLOCKS};

        let is_of_bookkeeping = matches!(
            tree,
            EXTENT_TREE | FREE_SPACE_TREE | BLOCK_GROUP_TREE | CSUM_TREE | CHUNK_TREE | DEV_TREE
        );
        let rank = if is_of_bookkeeping { BOOKKEEPING_BLOCKS } else { TREE_BLOCKS };
        match attempt {
            Attempt::Wait => Held::wait_for(rank),
            Attempt::Try => Held::tried(rank),
        }
    }

    impl Drop for LockRecord {
        fn drop(&mut self) {
            // A thread that ends may have lost its list before its last guard.
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|entry| entry.id != self.id));
        }
    }

    /// Whether `second` may be waited for while `first` is held.
    fn precedes(first: LockPlace, second: LockPlace) -> bool {
        if first.tree != second.tree {
            return rank(first.tree) < rank(second.tree);
        }
        first.level > second.level || (first.level == second.level && first.key < second.key)
    }

    /// Trees in their fixed order. A thread that copies a block of any tree may have to look up in
    /// the extent tree whether the block is shared. No thread locks any other two trees together.
    fn rank(tree: u64) -> u8 {
        u8::from(tree == EXTENT_TREE)
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use larder_format::objectid::{EXTENT_TREE, FS_TREE};
    use larder_format::{ItemType, Key};

    use super::*;

    fn place(tree: u64, level: u8, key: u64) -> LockPlace {
        LockPlace { tree, level, key: Key::new(key, ItemType(0), 0) }
    }

    fn take(place: LockPlace) -> LockRecord {
        LockRecord::new(place, Attempt::Wait, Location::caller())
    }

    fn violates(first: LockPlace, second: LockPlace) -> bool {
        let _first = take(first);
        std::panic::catch_unwind(|| take(second)).is_err()
    }

    #[test]
    fn parents_come_before_children_and_left_before_right() {
        assert!(!violates(place(5, 2, 9), place(5, 1, 3)));
        assert!(violates(place(5, 1, 3), place(5, 2, 9)));
        assert!(!violates(place(5, 1, 3), place(5, 1, 4)));
        assert!(violates(place(5, 1, 4), place(5, 1, 3)));
        assert!(violates(place(5, 1, 4), place(5, 1, 4)));
    }

    #[test]
    fn only_the_extent_tree_may_be_locked_below_another() {
        assert!(!violates(place(FS_TREE, 0, 0), place(EXTENT_TREE, 3, 0)));
        assert!(violates(place(EXTENT_TREE, 3, 0), place(FS_TREE, 0, 0)));
        assert!(violates(place(FS_TREE, 3, 0), place(256, 0, 0)));
    }

    #[test]
    fn a_violation_names_both_sites() {
        let _first = take(place(5, 0, 1));
        let error = std::panic::catch_unwind(|| take(place(5, 1, 0))).err().expect("a violation");
        let message = error.downcast_ref::<String>().expect("a message");
        assert_eq!(message.matches("validator.rs:").count(), 2, "{message}");
    }

    #[test]
    fn released_and_tried_locks_are_no_violation() {
        drop(take(place(5, 0, 1)));
        let _leaf = take(place(5, 0, 5));
        let _tried = LockRecord::new(place(5, 0, 1), Attempt::Try, Location::caller());
        let _right = take(place(5, 0, 7));
    }
}
