//! Trees in memory, without a kernel.

mod cache;
mod concurrent;
mod copying;
mod cursor;
mod hostile;
mod model;
mod overtaken;
#[path = "../support/mod.rs"]
mod support;
