//! Files of this system.

mod ingest;
mod onto;
mod original;

pub use ingest::{BUFFER_BYTES, Ingest, below};
pub use onto::{OntoHost, give, open_to_overwrite};
