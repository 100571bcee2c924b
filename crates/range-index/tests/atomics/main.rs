//! The index on real atomics.
#![cfg(not(feature = "shuttle"))]

mod linearizability;
mod model;
mod stress;
