//! Giving up the trees of deleted subvolumes.

use larder_transaction::space::Priority;
use larder_transaction::{Cleaning, Items, TreeItems};

use crate::core::changed::{Changed, apply};
use crate::core::writer::Writer;
use crate::error::Result;
use crate::inode::orphans::orphan_key;

/// Tree blocks that are given up in one step of a deletion.
const BLOCKS_PER_STEP: u64 = 256;

/// Gives up the trees of deleted subvolumes of which nothing is open. What fails is tried again
/// with the next call, and stays listed until the file system is opened for writing again.
pub(crate) fn drop_unused_subvolumes(writer: &Writer) {
    if !writer.deleted.is_empty() {
        // It fails where an error has made the file system read-only, or there is no room at
        // the moment.
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

/// Makes the tree of a subvolume of which nothing is open as the last commit has it, and forgets what need not be
/// written any more.
fn commit_unused(writer: &Writer, id: u64) -> Changed<()> {
    writer.dirty.discard(id);
    writer.delayed.discard(id);
    let changed_in = writer.manager.trees().open(id)?.map_or(0, |tree| tree.root().generation);
    if changed_in > writer.manager.durable_generation() {
        writer.manager.commit()?;
    }
    Ok(())
}

/// Gives up the tree of a subvolume that was deleted, in steps, and takes it from the list.
fn drop_subvolume(writer: &Writer, cleaning: &Cleaning<'_>, id: u64) -> Changed<()> {
    if writer.manager.trees().open(id)?.is_some() {
        while !writer.manager.drop_tree(id, BLOCKS_PER_STEP)? {
            cleaning.stepped();
        }
    }
    writer.ids.forget(id);
    let handle = writer.manager.start(1, Priority::Cleaning)?;
    let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
    apply(&handle, || root_tree.remove(orphan_key(id)))?;
    handle.end()
}

/// Completes deletions of subvolumes that were interrupted.
pub(crate) fn resume_subvolume_deletions(writer: &Writer) -> Result<()> {
    let root_tree = TreeItems::new(writer.manager.trees().root().clone());
    for (key, _) in root_tree.range(orphan_key(0)..=orphan_key(u64::MAX))? {
        let id = key.offset;
        let item =
            writer.manager.trees().open(id)?.and_then(|_| writer.manager.trees().root_item(id));
        // One that is in use is listed for another reason, which is not known here.
        if item.is_none_or(|(_, item)| item.refs.get() == 0) {
            drop_subvolume(writer, &writer.manager.begin_cleaning(), id)?;
        }
    }
    Ok(())
}
