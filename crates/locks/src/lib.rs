//! Locks with ranks. A thread may wait for a lock only if no lock that it holds has a later rank.
//!
//! [`rank`] has the ranks of all crates, in order; `docs/locking.md` shows them and says why each is
//! safe. [`RankedMutex`] and [`RankedRwLock`] are those of `parking_lot` with a rank. Locks of another kind
//! hold a [`Held`].
//!
//! # Invariants
//! - In debug builds a thread that waits for a lock against the order panics, even if no other
//!   thread waits. The message names both locks, and where each is taken.
//! - In release builds all of this is empty.
#![forbid(unsafe_code)]

mod condvar;
mod mutex;
mod order;
pub mod rank;
mod rw_lock;

pub use condvar::RankedCondvar;
pub use mutex::{RankedMutex, RankedMutexGuard};
pub use order::{Held, elsewhere};
pub use rw_lock::{RankedReadGuard, RankedRwLock, RankedWriteGuard};
