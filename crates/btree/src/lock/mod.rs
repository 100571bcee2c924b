//! The locks of tree blocks, and their order.
//!
//! - `tree_lock`: the lock itself. `context`: what the locks of a forest share.
//! - `waiting`: how a thread waits; in its place `ablation.rs`, with other ways, for benchmarks.
//! - `recorder`: notes which locks a thread takes and when, for benchmarks.
//! - `validator`: holds every thread to the order, in debug builds.
//!
//! Order: the root pointer of a tree before its blocks; parent before child; left before right. A
//! thread may try locks in any order, since trying never waits.

mod context;
#[cfg(feature = "ablation")]
mod recorder;
#[cfg(feature = "shuttle")]
mod shuttle_raw;
mod tree_lock;
mod validator;
#[cfg_attr(feature = "ablation", path = "ablation.rs")]
mod waiting;

pub(crate) use self::context::LockContext;
#[cfg(feature = "ablation")]
pub use self::recorder::{LockAction, LockEvent, Right, record_locks};
pub(crate) use self::tree_lock::{ReadGuard, TreeLock, Version, WriteGuard};
pub(crate) use self::validator::LockPlace;
#[cfg(feature = "ablation")]
pub use self::waiting::Waiting;
