//! Deleting inodes without a name once they are not open.

use larder_format::ItemType;
use larder_format::item::InodeItem;
use larder_transaction::space::Priority;
use larder_transaction::{Cleaning, Items, TreeItems};
use zerocopy::FromBytes;

use crate::changed::{Changed, apply};
use crate::core::writer::Writer;
use crate::error::Result;
use crate::live::orphans::{EXTENTS_PER_STEP, Orphan, orphan_key};

/// Items that a step may insert at worst: none, but leaves are copied.
const ITEMS: u64 = 4;

/// Deletes inodes that are not open any more. After a failure the next call, or the next commit in
/// the background, tries again. An inode stays listed in its tree until it is deleted.
pub(crate) fn delete_orphans(writer: &Writer) {
    if writer.orphans.is_empty() {
        return;
    }
    let cleaning = writer.manager.begin_cleaning();
    while let Some(orphan) = writer.orphans.pop() {
        if delete_inode(writer, &cleaning, &orphan).is_err() {
            writer.orphans.push(orphan);
            break;
        }
    }
}

fn delete_inode(writer: &Writer, cleaning: &Cleaning<'_>, orphan: &Orphan) -> Changed<()> {
    let is_gone =
        |id| writer.manager.trees().root_item(id).is_none_or(|(_, item)| item.refs.get() == 0);
    loop {
        let space = writer.manager.space();
        let most = space.references_at_once(ITEMS, EXTENTS_PER_STEP, Priority::Cleaning);
        let handle = writer.manager.start_referring(ITEMS, most, Priority::Cleaning)?;
        if is_gone(orphan.tree.id()) || writer.send_guards.has(orphan.tree.id()) {
            return Ok(());
        }
        let is_done = apply(&handle, || orphan.delete_step(&handle, most))?;
        handle.end()?;
        cleaning.stepped();
        if is_done {
            return Ok(());
        }
    }
}

/// Deletes the inodes without a name in a subvolume that is not open.
pub(crate) fn resume_orphans(writer: &Writer, subvolume: u64) -> Result<()> {
    let tree = writer.live_tree(subvolume)?;
    let listed = orphan_key(0)..=orphan_key(u64::MAX);
    for (key, _) in TreeItems::new(tree.clone()).range(listed)? {
        resume_orphan(writer, &Orphan { tree: tree.clone(), number: key.offset })?;
    }
    Ok(())
}

/// Deletes an inode that is listed as an orphan; one that has a name is only removed from the list.
fn resume_orphan(writer: &Writer, orphan: &Orphan) -> Result<()> {
    let key = orphan.key(ItemType::INODE_ITEM, 0);
    let links =
        |data: &[u8]| InodeItem::ref_from_prefix(data).map_or(0, |(item, _)| item.nlink.get());
    if orphan.tree.get_with(key, links)? == Some(0) {
        return Ok(delete_inode(writer, &writer.manager.begin_cleaning(), orphan)?);
    }
    let handle = writer.manager.start(ITEMS, Priority::Cleaning)?;
    if writer.send_guards.has(orphan.tree.id()) {
        return Ok(handle.end()?);
    }
    let mut items = TreeItems::new(orphan.tree.clone());
    apply(&handle, || items.remove(orphan_key(orphan.number)))?;
    Ok(handle.end()?)
}
