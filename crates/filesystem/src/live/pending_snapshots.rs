//! Snapshots that the next commit takes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::live::open::OpenInode;
use crate::live::subvolume::LiveSubvolume;

/// Snapshots that the next commit takes.
#[derive(Default)]
pub(crate) struct PendingSnapshots {
    pub(crate) queue: Mutex<Vec<Arc<Pending>>>,
}

pub(crate) struct Pending {
    pub(crate) source: u64,
    pub(crate) id: u64,
    pub(crate) directory: OpenInode,
    pub(crate) subvolume: Arc<LiveSubvolume>,
    pub(crate) name: Vec<u8>,
    pub(crate) is_read_only: bool,
    /// The outcome.
    pub(crate) outcome: Mutex<Option<Result<()>>>,
}
