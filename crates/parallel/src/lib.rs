//! Short work on many pieces by several threads: compression, checksums, changes of many inodes.
//!
//! - [`map`]: the results of work for many pieces, in their order.
//! - [`threads`]: how many threads work at once, decided here for all crates.
//! - `pool`: the threads, which all callers of a process share. They begin when they are needed, and
//!   end when they had nothing to do for a while.
//!
//! # Invariants
//! - A caller works too, and waits only for threads that are in the middle of its work: what no
//!   thread has begun, the caller withdraws and does itself. So work may take locks that callers
//!   hold, and may call [`map`], as if each call had threads of its own.
//! - No thread touches the work of a call after the call has returned.
//! - The threads may run on all processors of the process, also if the thread that started them may
//!   not.

mod map;
mod pool;
mod processors;

pub use map::{in_stretches, map, map_in_stretches, threads_for_one};
pub use processors::threads;
