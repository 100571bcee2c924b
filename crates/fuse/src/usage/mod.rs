//! What is mounted, in which namespaces, and which processes use it, for commands that mount,
//! unmount, or find an image in use.
//!
//! # Invariants
//! - Everything comes from `/proc`, and no server is asked: a server that hangs holds up no caller.
//! - What the caller may not see (processes of other users, namespaces without processes) is left
//!   out.

mod holders;
mod identity;
mod processes;
mod table;

pub use holders::{holders, in_words};
pub use identity::Identity;
pub use processes::{Process, namespaces, processes};
pub use table::{MountEntry, MountTable};
