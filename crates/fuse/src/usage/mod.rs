//! What is mounted, in which namespaces, and which processes use it: what a command needs to know that mounts,
//! unmounts, or finds an image in use.
//!
//! # Invariants
//! - No server is asked: everything comes from `/proc`, so that a server that hangs holds nobody up.
//! - What the caller may not see (processes of other users, namespaces without processes) is left out.

mod processes;
mod table;

pub use processes::{Process, namespaces, processes};
pub use table::{MountEntry, MountTable};
