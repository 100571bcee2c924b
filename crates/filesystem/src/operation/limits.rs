//! Keeping subvolumes within the limits of their quota groups.
//!
//! # Invariants
//! - A thread that makes a subvolume larger reserves space within its limits before, and keeps the
//!   reservation until the addition is counted: a write until writeback, anything else as long as
//!   it has a handle. So the call that would exceed a limit fails, never writeback.
//! - Removing anything, changing attributes, and growing a file by a hole reserve nothing.
//! - Sharing data with another subvolume reserves only the additions to the tree, as in the kernel:
//!   only shared data and delayed names can exceed a limit.

use larder_transaction::{Error as EngineError, QuotaReservation};

use crate::core::shared::Core;
use crate::error::Result;
use crate::writeback::flush::flush_all;
use crate::writeback::orphan_deletion::delete_orphans;

/// Reserves, within the limits of a subvolume, `data_bytes` more of data and `nodes` tree blocks,
/// as many as items are inserted at most. None if quotas are off.
///
/// Call this before locking any file or inode: it may write data back, which often takes less than
/// was reserved for it.
///
/// # Errors
/// `EDQUOT`.
pub(crate) fn reserve_quota(
    core: &Core,
    subvolume: u64,
    data_bytes: u64,
    nodes: u64,
) -> Result<Option<QuotaReservation>> {
    let writer = core.writer()?;
    let Some(quotas) = writer.manager.quotas() else { return Ok(None) };
    let nodesize = u64::from(core.volume().nodesize());
    let len_bytes = data_bytes.saturating_add(nodes * nodesize);
    let is_over = |reserved: &Result<_, EngineError>| {
        matches!(reserved, Err(EngineError::QuotaExceeded { .. }))
    };
    let mut reserved = quotas.reserve(subvolume, len_bytes);
    if is_over(&reserved) {
        // A thread that syncs the file learns of errors here.
        let _ = flush_all(core);
        reserved = quotas.reserve(subvolume, len_bytes);
    }
    if is_over(&reserved) {
        // What was deleted counts until its references are dropped.
        delete_orphans(writer);
        reserved = quotas.reserve(subvolume, len_bytes);
    }
    Ok(Some(reserved?))
}
