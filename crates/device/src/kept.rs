//! A state of devices that is kept for a reader.

use std::sync::{Arc, OnceLock};

use crate::Device;

/// Devices in a state that is kept for a reader, while other programs go on changing what they show
/// elsewhere. The state ends with the last of the devices, or earlier. Then reads fail: what was
/// read without an error is of the state.
#[derive(Clone, Debug)]
pub struct KeptState {
    devices: Vec<Arc<dyn Device>>,
    end: StateEnd,
}

/// The end of a state, and the reason. The devices set it before they fail a read.
#[derive(Clone, Debug, Default)]
pub struct StateEnd(Arc<OnceLock<String>>);

impl KeptState {
    /// A state of `devices`, which say in `end` when it has ended.
    pub fn new(devices: Vec<Arc<dyn Device>>, end: StateEnd) -> Self {
        Self { devices, end }
    }

    /// The devices, read-only.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.clone()
    }

    /// Why reads have failed that no device is to blame for: the state ended before them. A reader
    /// asks at its end, and tells this in place of what it has found.
    pub fn ended(&self) -> Option<&str> {
        self.end.reason()
    }
}

impl StateEnd {
    /// Notes that a read fails because the state has ended. The first reason counts.
    pub fn set(&self, reason: impl Into<String>) {
        self.0.get_or_init(|| reason.into());
    }

    fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
