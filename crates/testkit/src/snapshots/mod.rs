//! Snapshots to be sent: changes between them, and what a stream can carry of them.

mod mutate;
mod sendable;

pub use mutate::{Random, mutate};
pub use sendable::sendable;
