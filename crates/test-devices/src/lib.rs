//! Devices for tests and benchmarks: each wraps another device.
//!
//! - [`CountingDevice`] counts calls and bytes.
//! - [`FaultDevice`] fails or delays the calls that its rules match.
//! - [`RecordingDevice`] records writes and flushes of several devices in one order, from which
//!   [`Recording`] makes any state that a power cut may leave.
//! - [`SpinningDisk`] takes the time of a disk with a moving head.
#![forbid(unsafe_code)]

mod bytes;
mod counting;
mod fault;
mod recording;
mod spinning;

pub use counting::{CountingDevice, Counts};
pub use fault::{Fault, FaultDevice};
pub use recording::{Entry, Event, Recording, RecordingDevice, Replay, Survival};
pub use spinning::{Geometry, SpinningDisk};
