//! Dropping the trees of deleted subvolumes.

use larder_transaction::space::Priority;
use larder_transaction::{Cleaning, Items, TreeItems};

use crate::changed::{Changed, apply};
use crate::core::writer::Writer;
use crate::error::Result;
use crate::live::orphans::orphan_key;

/// Tree blocks and references to data that are dropped in one step of a deletion, at most.
const REFERENCES_PER_STEP: u64 = 1024;

/// Drops the trees of deleted subvolumes of which nothing is open. After a failure the next call
/// tries again; until then a subvolume stays listed, and opening the file system for writing
/// completes the deletion.
pub(crate) fn drop_unused_subvolumes(writer: &Writer) {
    if !writer.deleted.is_empty() {
        // It fails if an error has made the file system read-only, or if there is no space at the
        // moment.
        let _ = drop_unused(writer, &writer.manager.begin_cleaning());
    }
}

pub(crate) fn drop_unused(writer: &Writer, cleaning: &Cleaning<'_>) -> Changed<()> {
    while let Some(id) = writer.deleted.pop() {
        let dropped = commit_unused(writer, id).and_then(|()| drop_subvolume(writer, cleaning, id));
        dropped.inspect_err(|_| writer.deleted.push(id))?;
    }
    Ok(())
}

/// Resets the tree of a subvolume of which nothing is open to the last commit, and drops changes
/// that need not be written any more.
fn commit_unused(writer: &Writer, id: u64) -> Changed<()> {
    writer.dirty.discard(id);
    writer.delayed.discard(id);
    let changed_in = writer.manager.trees().open(id)?.map_or(0, |tree| tree.root().generation);
    if changed_in > writer.manager.durable_generation() {
        writer.manager.commit()?;
    }
    Ok(())
}

/// Drops the tree of a deleted subvolume, in steps, and removes it from the list.
fn drop_subvolume(writer: &Writer, cleaning: &Cleaning<'_>, id: u64) -> Changed<()> {
    if writer.manager.trees().open(id)?.is_some() {
        while !writer.manager.drop_tree(id, REFERENCES_PER_STEP)? {
            cleaning.stepped();
        }
    }
    writer.ids.forget(id);
    let handle = writer.manager.start(1, Priority::Cleaning)?;
    let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
    apply(&handle, || root_tree.remove(orphan_key(id)))?;
    handle.end()
}

/// Completes interrupted deletions of subvolumes.
pub(crate) fn resume_subvolume_deletions(writer: &Writer) -> Result<()> {
    let root_tree = TreeItems::new(writer.manager.trees().root().clone());
    for (key, _) in root_tree.range(orphan_key(0)..=orphan_key(u64::MAX))? {
        let id = key.offset;
        let item =
            writer.manager.trees().open(id)?.and_then(|_| writer.manager.trees().root_item(id));
        // A subvolume in use is listed for another reason, which is unknown here.
        if item.is_none_or(|(_, item)| item.refs.get() == 0) {
            drop_subvolume(writer, &writer.manager.begin_cleaning(), id)?;
        }
    }
    Ok(())
}
