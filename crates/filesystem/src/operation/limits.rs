//! Keeping subvolumes within the limits of their quota groups.
//!
//! # Invariants
//! - Whoever makes a subvolume larger was promised room within its limits before, and keeps the promise until
//!   what it added is counted: a write until its data is written back, anything else for as long as it has a
//!   handle. So a limit is hit by the call that would pass it, never by writing back.
//! - What takes something away, what changes attributes, and growing a file by a hole ask for nothing.
//! - Sharing data with another subvolume asks for the room of what it adds to the tree only, as in the kernel:
//!   by shared data, and by nothing else but delayed names, a limit can be passed.

use larder_transaction::space::Priority;
use larder_transaction::{Error as EngineError, Handle, QuotaReservation};

use crate::core::live_subvolume::LiveSubvolume;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::Result;
use crate::file::writeback::flush::flush_all;
use crate::inode::delayed::flush::relieve;

/// Promises that this subvolume may come to refer to `data_bytes` more of data and `nodes` tree blocks, as
/// many as items are inserted at most. None where quotas are off.
///
/// The caller holds nothing but `renames`: data may be written back, which often takes less than was
/// promised for it.
///
/// # Errors
/// `EDQUOT`.
pub(crate) fn reserve_quota(
    core: &Core,
    subvolume: u64,
    data_bytes: u64,
    nodes: u64,
) -> Result<Option<QuotaReservation>> {
    let Some(quotas) = core.writer()?.manager.quotas() else { return Ok(None) };
    let nodesize = u64::from(core.volume().nodesize());
    let len_bytes = data_bytes.saturating_add(nodes * nodesize);
    let reservation = match quotas.reserve(subvolume, len_bytes) {
        Err(EngineError::QuotaExceeded { .. }) => {
            // What fails here is told to whoever syncs that file.
            let _ = flush_all(core);
            quotas.reserve(subvolume, len_bytes)
        }
        reservation => reservation,
    };
    Ok(Some(reservation?))
}

/// Joins the running transaction to change `subvolume`, with room for inserting `items` items.
pub(crate) fn join<'w>(
    writer: &'w Writer,
    subvolume: &LiveSubvolume,
    items: u64,
    priority: Priority,
) -> Result<Handle<'w>> {
    relieve(writer)?;
    let handle = writer.manager.start(items, priority)?;
    subvolume.check_writable()?;
    Ok(handle)
}

/// As [`join`], for what inserts up to `items` items in the tree of `subvolume`.
///
/// # Errors
/// `EDQUOT`, besides.
pub(crate) fn join_growing<'c>(
    core: &'c Core,
    subvolume: &LiveSubvolume,
    items: u64,
) -> Result<Handle<'c>> {
    let quota = reserve_quota(core, subvolume.tree().id(), 0, items)?;
    let mut handle = join(core.writer()?, subvolume, items, Priority::Normal)?;
    handle.keep_quota(quota);
    Ok(handle)
}
