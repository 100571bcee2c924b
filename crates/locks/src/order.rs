//! Holds every thread to the order, in debug builds.

/// A lock that the thread holds, or waits for.
#[derive(Debug)]
#[must_use]
pub struct Held {
    #[cfg(debug_assertions)]
    id: u64,
}

/// Calls a device, whose locks have an order of their own: it may be a file of another file system.
pub fn elsewhere<T>(call: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    let _apart = checked::Apart::new();
    call()
}

#[cfg(not(debug_assertions))]
impl Held {
    /// Notes that this thread waits for a lock of this rank, before it does.
    #[inline(always)]
    pub fn wait_for(_: u8) -> Self {
        Self {}
    }

    /// Notes that this thread has a lock of this rank, for which it did not wait.
    #[inline(always)]
    pub fn tried(_: u8) -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::panic::Location;

    use super::Held;
    use crate::rank::ALL;

    struct Entry {
        id: u64,
        rank: u8,
        site: &'static Location<'static>,
    }

    #[derive(Default)]
    struct Thread {
        held: Vec<Entry>,
        /// As many of them are of an order of their own.
        apart: usize,
        next_id: u64,
    }

    thread_local! {
        static THREAD: RefCell<Thread> = RefCell::default();
    }

    impl Held {
        /// Notes that this thread waits for a lock of this rank, before it does.
        ///
        /// # Panics
        /// If it holds one of a later rank.
        #[track_caller]
        pub fn wait_for(rank: u8) -> Self {
            let site = Location::caller();
            THREAD.with_borrow(|thread| {
                let mut held = thread.held[thread.apart..].iter();
                let Some(later) = held.find(|entry| !precedes(entry.rank, rank)) else { return };
                let (this, that) = (ALL[usize::from(rank)].lock, ALL[usize::from(later.rank)].lock);
                panic!(
                    "lock order violated: {this} is taken at {site} while {that}, taken at {}, is \
                     held",
                    later.site
                );
            });
            Self::note(rank, site)
        }

        /// Notes that this thread has a lock of this rank, for which it did not wait.
        #[track_caller]
        pub fn tried(rank: u8) -> Self {
            Self::note(rank, Location::caller())
        }

        fn note(rank: u8, site: &'static Location<'static>) -> Self {
            THREAD.with_borrow_mut(|thread| {
                let id = thread.next_id;
                thread.next_id += 1;
                thread.held.push(Entry { id, rank, site });
                Self { id }
            })
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A thread that ends may have lost its list before its last lock.
            let _ = THREAD.try_with(|thread| {
                thread.borrow_mut().held.retain(|entry| entry.id != self.id);
            });
        }
    }

    fn precedes(first: u8, second: u8) -> bool {
        first < second || (first == second && ALL[usize::from(first)].has_several)
    }

    /// The locks that are held now have an order of their own until this is dropped.
    pub(super) struct Apart {
        before: usize,
    }

    impl Apart {
        pub(super) fn new() -> Self {
            THREAD.with_borrow_mut(|thread| Self {
                before: std::mem::replace(&mut thread.apart, thread.held.len()),
            })
        }
    }

    impl Drop for Apart {
        fn drop(&mut self) {
            THREAD.with_borrow_mut(|thread| thread.apart = self.before);
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::rank::{CHANGING, COMMITTING, GATE, ROOTS};

    fn violates(first: u8, second: u8) -> bool {
        let _first = Held::wait_for(first);
        std::panic::catch_unwind(|| drop(Held::wait_for(second))).is_err()
    }

    #[test]
    fn a_thread_waits_only_for_later_ranks() {
        assert!(!violates(COMMITTING, GATE));
        assert!(violates(GATE, COMMITTING));
        assert!(violates(ROOTS, ROOTS));
        assert!(!violates(CHANGING, CHANGING), "files have an order of their own");
    }

    #[test]
    fn released_and_tried_locks_are_no_violation() {
        drop(Held::wait_for(ROOTS));
        let _gate = Held::wait_for(GATE);
        drop(Held::tried(COMMITTING));
        let _roots = Held::wait_for(ROOTS);
    }

    #[test]
    fn devices_have_an_order_of_their_own() {
        let _gate = Held::wait_for(GATE);
        elsewhere(|| {
            let _outer = Held::wait_for(GATE);
            assert!(violates(ROOTS, GATE));
        });
        assert!(std::panic::catch_unwind(|| drop(Held::wait_for(COMMITTING))).is_err());
    }

    #[test]
    fn a_violation_names_both_sites() {
        let _first = Held::wait_for(ROOTS);
        let error = std::panic::catch_unwind(|| drop(Held::wait_for(GATE)));
        let error = error.expect_err("a violation");
        let message = error.downcast_ref::<String>().expect("a message");
        assert_eq!(message.matches("order.rs:").count(), 2, "{message}");
    }
}
