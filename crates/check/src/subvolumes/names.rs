//! The names of subvolumes: references, back references, and directory entries.

use std::collections::{BTreeSet, HashMap};

use larder_format::item::DirEntries;
use larder_format::{ItemType, Key, objectid};

use crate::blocks::{Forest, TreeRoot, find_item};
use crate::context::Context;
use crate::evidence::SubvolumeEvidence;
use crate::report::Location;
use crate::roots::{RootTree, SubvolumeName};

/// Compares references, back references and directory entries of subvolumes.
pub(crate) fn check(context: &Context<'_>, forest: &Forest, roots: &RootTree) {
    if !roots.is_whole {
        return;
    }
    for name in roots.refs.symmetric_difference(&roots.back_refs) {
        let parent = name.parent;
        let evidence = if roots.refs.contains(name) {
            SubvolumeEvidence::NoBackReference { parent }
        } else {
            SubvolumeEvidence::NoReference { parent }
        };
        context.find(Location::tree(name.child), evidence);
    }
    let trees: HashMap<u64, &TreeRoot> =
        forest.roots().iter().map(|root| (root.tree, root)).collect();
    for name in &roots.refs {
        check_entry(context, forest, roots, &trees, name);
    }
    check_unnamed(context, roots);
}

/// Checks that the directory that a reference names has an entry for the subvolume.
fn check_entry(
    context: &Context<'_>,
    forest: &Forest,
    roots: &RootTree,
    trees: &HashMap<u64, &TreeRoot>,
    name: &SubvolumeName,
) {
    let location = Location::tree(name.parent).inode(name.dirid);
    if roots.get(name.child).is_none() {
        return context.find(location, SubvolumeEvidence::NamesNone { subvolume: name.child });
    }
    let Some(parent) = trees.get(&name.parent) else {
        let subvolume = name.child;
        return context.find(location, SubvolumeEvidence::InNoSubvolume { subvolume });
    };
    let key = Key::new(name.dirid, ItemType::DIR_INDEX, name.sequence);
    let Ok(item) = find_item(context, forest, parent, key) else {
        return; // An unreadable block was reported.
    };
    let data = item.unwrap_or_default();
    let is_named = DirEntries::new(&data).flatten().any(|entry| {
        let location = entry.header.location.get();
        location.item_type == ItemType::ROOT_ITEM
            && location.objectid == name.child
            && *entry.name == *name.name
    });
    if !is_named {
        let (index, subvolume) = (name.sequence, name.child);
        context.find(location, SubvolumeEvidence::OtherEntry { index, subvolume });
    }
}

/// Checks that every subvolume has a name or is listed for deletion.
fn check_unnamed(context: &Context<'_>, roots: &RootTree) {
    let named: BTreeSet<u64> =
        roots.refs.iter().chain(&roots.back_refs).map(|name| name.child).collect();
    for entry in &roots.entries {
        let is_top = entry.id == objectid::FS_TREE;
        if is_top || !objectid::is_subvolume(entry.id) {
            continue;
        }
        let location = Location::tree(entry.id);
        if entry.is_deleted() {
            if !roots.orphans.contains(&entry.id) {
                context.find(location, SubvolumeEvidence::NotListedForDeletion);
            }
            continue;
        }
        if !named.contains(&entry.id) {
            context.find(location, SubvolumeEvidence::Unnamed);
        }
    }
}
