//! The time that changes are given.

use larder_format::item::Timespec;

/// The time now.
pub fn now() -> Timespec {
    let (seconds, nanoseconds) = larder_device::now();
    Timespec::new(seconds, nanoseconds)
}
