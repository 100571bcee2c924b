//! Verifying every copy on every device, and repairing bad ones from good ones.
//!
//! [`Scrub::run`] scrubs one device, in the order of its addresses: the superblocks (`superblocks`),
//! then chunk after chunk. One thread walks the extents of a chunk and reads (`walk`), another
//! verifies (`verify`), in the same order, so that a scrub can begin again where it was. What is
//! bad is judged and repaired by the second one (`repair`).
//!
//! # Invariants
//! - **What is read.** A scrub walks a durable state whose space is kept (`state.rs`), and the
//!   geometry that was current after the state was taken, which still has all chunks of the state.
//!   While the state is kept, commits overwrite nothing that it leads to, with two exceptions:
//!   superblocks, which are read between commits; and data without checksums, which is never judged
//!   by more than one read unless nobody writes meanwhile.
//! - **What is bad.** A block is called bad only if the state was still kept after it was read.
//!   Otherwise nothing of it counts, and the scrub takes the next state and reads the same addresses
//!   again. A block without a good copy is looked up once more: if the newest state does not have it,
//!   it was freed meanwhile, and no one misses it.
//! - **What is repaired.** Only a copy that is bad in a kept state, with content that its checksum
//!   proves right; or, without a checksum, a copy that its device cannot read, with the content of a
//!   device that missed nothing. The scrub writes while no other thread writes to the volume, and
//!   only if the state is still kept then. Space of a kept state is not handed out, so a repair never
//!   overwrites newer content. Data without checksums is read there too.
//! - **Order.** A repair needs no commit: it makes a copy what the durable state says it is, and the
//!   next flush makes that durable. A scrub that repaired anything flushes before it ends.
//!   Superblocks are repaired by a commit at the end.
//! - **A crash** in the middle of a repair leaves that copy as bad as it was, or mended. No good copy
//!   is ever written. The next scrub finds what is left.
//! - Each bad block ends as one of four: repaired, beyond repair, freed meanwhile, or left as it is,
//!   since the scrub or the profile allows no repair ([`Fate`]). All others are sound.
//! - Memory is bounded: a few batches (`batch.rs`) for each device, and the
//!   caches of the trees.
#![forbid(unsafe_code)]

mod batch;
mod checksums;
mod counters;
mod device;
mod finding;
mod repair;
mod run;
mod state;
mod superblocks;
mod verifier;
mod verify;
mod walk;
mod wanted;

pub use counters::{Counters, Progress};
pub use device::{Scrub, Stopped};
pub use finding::{Fate, Finding, Subject};
pub use state::Target;
