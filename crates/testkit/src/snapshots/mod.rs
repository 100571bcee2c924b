//! Snapshots to send: changes between them, and the part that a stream carries.

mod mutate;
mod sendable;

pub use mutate::{Random, mutate};
pub use sendable::sendable;
