//! How many guards each subvolume has.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// How many guards each subvolume has.
#[derive(Default)]
pub(crate) struct SendGuards {
    pub(crate) count_of: Mutex<HashMap<u64, u32>>,
}

impl SendGuards {
    /// Whether the subvolume has a guard.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.count_of.lock().contains_key(&id)
    }

    /// Refuses to change a subvolume that has a guard.
    pub(crate) fn check_free(&self, id: u64) -> Result<()> {
        if self.has(id) { Err(Error::NotPermitted("it is being sent")) } else { Ok(()) }
    }
}
