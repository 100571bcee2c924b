//! A state of devices that is kept for a reader.

use std::sync::{Arc, OnceLock};

use crate::Device;

/// Read-only devices that show one state, while the file system on them goes on changing. The state
/// ends when the last of the devices is dropped, or earlier. Reads fail after that. A read that
/// succeeds returns content of the state.
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

    /// Why the state ended, if a read has failed because of that. A reader asks when it is done: its
    /// findings about such reads are not true of the devices.
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
