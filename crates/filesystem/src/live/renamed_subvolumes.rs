//! Which subvolumes were renamed lately.
//!
//! The name of a subvolume lies outside of its own tree, and no log has it: who syncs the root of a
//! subvolume makes its name durable by a commit.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The last transaction that renamed each subvolume, by its id, if that may not be durable.
#[derive(Default)]
pub(crate) struct RenamedSubvolumes(Mutex<BTreeMap<u64, u64>>);

impl RenamedSubvolumes {
    /// Notes that the transaction `generation` renames a subvolume.
    pub(crate) fn renamed(&self, id: u64, generation: u64, durable_generation: u64) {
        let mut renamed = self.0.lock();
        renamed.retain(|_, generation| *generation > durable_generation);
        renamed.insert(id, generation);
    }

    /// Whether a name that the subvolume got is not durable yet.
    pub(crate) fn is_pending(&self, id: u64, durable_generation: u64) -> bool {
        self.0.lock().get(&id).is_some_and(|generation| *generation > durable_generation)
    }
}
