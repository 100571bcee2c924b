//! Scrubs that go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_scrub::Progress;
use parking_lot::Mutex;

/// The counters of scrubs that go on, and limits for those to come, by device.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    running: Mutex<BTreeMap<u64, Arc<Progress>>>,
    limits: Mutex<BTreeMap<u64, u64>>,
}

impl Scrubs {
    /// The counters of the scrub of a device, if one goes on.
    pub(crate) fn of(&self, device: u64) -> Option<Arc<Progress>> {
        self.running.lock().get(&device).cloned()
    }

    /// The limit of a device, in bytes a second.
    pub(crate) fn limit_of(&self, device: u64) -> Option<u64> {
        self.limits.lock().get(&device).copied()
    }

    pub(crate) fn set_limit(&self, device: u64, limit: Option<u64>) {
        let mut limits = self.limits.lock();
        match limit {
            Some(limit) => drop(limits.insert(device, limit)),
            None => drop(limits.remove(&device)),
        }
    }

    /// Adds the counters of a scrub, as long as the result lives. No other scrubs the device.
    pub(crate) fn begin(&self, device: u64) -> ShownScrub<'_> {
        let progress = Arc::<Progress>::default();
        self.running.lock().insert(device, progress.clone());
        ShownScrub { all: self, device, progress }
    }
}

/// A scrub whose counters others can see.
pub(crate) struct ShownScrub<'s> {
    all: &'s Scrubs,
    device: u64,
    pub(crate) progress: Arc<Progress>,
}

impl Drop for ShownScrub<'_> {
    fn drop(&mut self) {
        self.all.running.lock().remove(&self.device);
    }
}
