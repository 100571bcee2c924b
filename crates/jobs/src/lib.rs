//! Long work on a file system: jobs.
//!
//! - [`Jobs`]: the jobs of one file system. [`Jobs::begin`] adds one, or says which other job
//!   excludes it.
//! - [`Job`]: how far it is, for those who watch it; and what they want of it: to pause, to keep to a
//!   limit, to end.
//! - [`Jobs::watch`]: work in another thread, while this one watches the jobs that it begins.
//! - [`Running`]: the right to do the work. The thread that works holds it, and calls [`Job::step`]
//!   between pieces.
//!
//! # Invariants
//! - Two jobs that exclude each other never run at once: `begin` looks and adds under one lock, and
//!   a job is in the list until its [`Running`] is dropped, also by a panic.
//! - A watcher never waits for the work, and the work waits for a watcher only while it is paused.
//! - A job that was cancelled fails in its next step, paused or not.
//! - Nothing of a job outlives the process. Work that goes on after a crash keeps its own place.
#![forbid(unsafe_code)]

mod job;
mod kind;
mod pace;
mod registry;
mod watch;

pub use job::{Cancelled, Job, JobStatus};
pub use kind::JobKind;
pub use registry::{Excluded, Jobs, Running};
