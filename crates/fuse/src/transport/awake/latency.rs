//! The kernel's bound on how long processors may take to wake up.

use std::fs::File;
use std::io::Write;

use super::keep::KeepAwake;

/// The device through which root bounds the latency, in microseconds. The bound is that of the
/// lowest value in any open descriptor.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// A bound of 0 microseconds: processors do not leave their shallowest sleep.
#[derive(Debug)]
pub(super) struct LatencyRequest {
    /// Open while the bound is wanted.
    device: Option<File>,
}

impl LatencyRequest {
    /// The request, if this process may make it.
    pub(super) fn new() -> Option<Self> {
        File::options().write(true).open(DEVICE).is_ok().then_some(Self { device: None })
    }
}

impl KeepAwake for LatencyRequest {
    fn keep(&mut self) {
        if self.device.is_none()
            && let Ok(mut device) = File::options().write(true).open(DEVICE)
            && device.write_all(&0_i32.to_ne_bytes()).is_ok()
        {
            self.device = Some(device);
        }
    }

    fn rest(&mut self) {
        self.device = None;
    }
}
