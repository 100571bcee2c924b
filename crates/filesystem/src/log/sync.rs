//! fsync: through logs if they can take it, and otherwise by a commit.
//!
//! # Invariants
//! - A thread that syncs writes its data back before it queues up. One thread at a time writes
//!   logs, for all that have queued up by then. They return as soon as that is done.
//! - Each change of an inode raises its sequence number. If it has not changed since it was
//!   fsynced, or in the running transaction, it is durable.
//! - If it is not certain that a log says everything that must survive, there is a commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use larder_transaction::LogWriter;

use crate::changed::Changed;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::item::id::InodeId;
use crate::live::sync_queue::Request;
use crate::log::plan::{Along, LogPlan};

/// Makes all changes of an inode durable.
pub(crate) fn sync_inode(
    core: &Core,
    writer: &Writer,
    id: InodeId,
    is_directory: bool,
) -> Changed<()> {
    let request = Arc::new(Request { id, is_directory, outcome: OnceLock::new() });
    writer.syncs.push(request.clone());
    writer.syncs.wait(&request, |requests| make_durable(core, writer, requests))
}

fn make_durable(core: &Core, writer: &Writer, requests: &[Arc<Request>]) -> Changed<()> {
    let mut wanted: BTreeMap<InodeId, bool> = BTreeMap::new();
    for request in requests {
        *wanted.entry(request.id).or_default() |= request.is_directory;
    }
    let mut along = Vec::new();
    let is_logged =
        LogWriter::write(&writer.manager, |logs| fill_logs(core, writer, logs, wanted, &mut along));
    // An inode that cannot be logged, for example because something cannot be read, may still be
    // committed.
    if matches!(is_logged, Ok(true)) {
        along.iter().for_each(Along::synced);
        return Ok(());
    }
    writer.manager.commit()?;
    writer.logged_inodes.synced_by_commit(requests.iter().map(|request| request.id));
    Ok(())
}

/// Writes the requests to the logs, and directories `along`. Returns whether the logs can take them.
fn fill_logs(
    core: &Core,
    writer: &Writer,
    logs: &mut LogWriter<'_, '_>,
    wanted: BTreeMap<InodeId, bool>,
    along: &mut Vec<Along>,
) -> Changed<bool> {
    let Some((plan, logged_along)) = LogPlan::of(writer, logs, wanted)? else { return Ok(false) };
    *along = logged_along;
    plan.enter(core, writer, logs)
}
