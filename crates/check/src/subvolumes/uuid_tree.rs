//! The uuid tree against the root items.

use std::collections::BTreeSet;

use larder_format::item::{uuid_items, uuid_key};
use larder_format::{ItemType, Key, objectid};

use crate::blocks::{Forest, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ItemEvidence, SubvolumeEvidence};
use crate::report::Location;
use crate::roots::RootTree;

/// Reads the uuid tree and reports where it differs from the root items. The kernel ignores a tree
/// whose generation differs from that in the superblock.
pub(crate) fn check(context: &Context<'_>, forest: &mut Forest, root: &TreeRoot, roots: &RootTree) {
    let mut listed: BTreeSet<(Key, u64)> = BTreeSet::new();
    let is_whole = for_each_item(context, forest, root, |item| {
        let is_uuid = matches!(
            item.key.item_type,
            ItemType::UUID_KEY_SUBVOL | ItemType::UUID_KEY_RECEIVED_SUBVOL
        );
        if is_root_directory(item.key) {
            return;
        }
        if !is_uuid {
            let (found, tree) = (item.key.item_type, "uuid tree");
            return item.find(context, ItemEvidence::Unexpected { found, tree });
        }
        match uuid_items(item.data) {
            Ok(ids) => listed.extend(ids.iter().map(|id| (item.key, id.get()))),
            Err(error) => item.find(context, ItemEvidence::Format { problem: error }),
        }
    });
    let is_used =
        context.superblock.uuid_tree_generation.get() == context.superblock.generation.get();
    if !is_whole || !is_used || !roots.is_whole {
        return;
    }
    let mut wanted: BTreeSet<(Key, u64)> = BTreeSet::new();
    for entry in roots.entries.iter().filter(|entry| objectid::is_subvolume(entry.id)) {
        let uuids = [
            (entry.item.uuid(), ItemType::UUID_KEY_SUBVOL),
            (entry.item.received_uuid(), ItemType::UUID_KEY_RECEIVED_SUBVOL),
        ];
        let present = uuids.into_iter().filter(|(uuid, _)| !uuid.is_nil());
        wanted.extend(present.map(|(uuid, kind)| (uuid_key(uuid, kind), entry.id)));
    }
    for (key, id) in listed.difference(&wanted) {
        let location = Location::tree(root.tree).key(*key);
        context.find(location, SubvolumeEvidence::ListsOther { subvolume: *id });
    }
    for (key, id) in wanted.difference(&listed) {
        // A subvolume that is being deleted may have left the tree already.
        if roots.get(*id).is_some_and(|entry| !entry.is_deleted()) && *id != objectid::FS_TREE {
            let location = Location::tree(root.tree).key(*key);
            context.find(location, SubvolumeEvidence::Lacks { subvolume: *id });
        }
    }
}

/// Whether a key belongs to the root directory that old mkfs.btrfs put into this tree, too.
fn is_root_directory(key: Key) -> bool {
    let is_of_inode = matches!(key.item_type, ItemType::INODE_ITEM | ItemType::INODE_REF);
    key.objectid == objectid::FIRST_FREE && is_of_inode
}
