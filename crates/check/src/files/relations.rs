//! Finds which relations between inodes are broken, for a tree where the sums of their fingerprints
//! are not zero.
//!
//! Reads the tree a second time and keeps its relations: about 50 bytes for each name.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use larder_format::item::{DirEntries, FileType, InodeExtrefs, InodeItem, InodeRefs};
use larder_format::{ItemType, objectid, read_exact_item};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item_again};
use crate::context::Context;
use crate::evidence::InodeEvidence;
use crate::report::Location;
use crate::roots::RootTree;

/// A name from a directory entry or an inode reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    directory: u64,
    index: u64,
    target: u64,
    fingerprint: u64,
}

#[derive(Debug, Default)]
struct Relations {
    entries: Vec<(Name, FileType)>,
    references: Vec<Name>,
    /// Subvolumes' names: directory, index and subvolume.
    subvolumes: Vec<(u64, u64, u64)>,
    inodes: HashMap<u64, (FileType, u32)>,
    orphans: BTreeSet<u64>,
    has_findings: Cell<bool>,
}

/// Reports the broken relations of a tree. Returns whether there are any.
///
/// A directory that is being deleted may have entries: they and what they lead to go in any order.
pub(super) fn explain(
    context: &Context<'_>,
    forest: &Forest,
    root: &TreeRoot,
    roots: &RootTree,
) -> bool {
    let mut relations = Relations::default();
    for_each_item_again(context, forest, root, |item| relations.add(context, &item));
    relations.entries.sort_unstable_by_key(|entry| entry.0);
    relations.references.sort_unstable();
    let location = Location::tree(root.tree);
    relations.report_entries(context, location);
    relations.report_references(context, location);
    relations.report_orphans(context, location);
    relations.report_subvolumes(context, root, roots);
    relations.has_findings.get()
}

impl Relations {
    fn add(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let key = item.key;
        let name = |directory, index, target, name| {
            let fingerprint = context.fingerprints.of_bytes(name);
            Name { directory, index, target, fingerprint }
        };
        match key.item_type {
            ItemType::INODE_ITEM => {
                let Ok(inode) = read_exact_item::<InodeItem>(item.data) else { return };
                let file_type = FileType::from_mode(inode.mode.get()).unwrap_or(FileType::Unknown);
                self.inodes.insert(key.objectid, (file_type, inode.nlink.get()));
            }
            ItemType::INODE_REF => {
                let names = InodeRefs::new(item.data).flatten();
                let names = names.filter(|_| key.offset != key.objectid);
                self.references
                    .extend(names.map(|n| name(key.offset, n.index, key.objectid, n.name)));
            }
            ItemType::INODE_EXTREF => {
                let names = InodeExtrefs::new(item.data).flatten();
                self.references
                    .extend(names.map(|n| name(n.parent, n.index, key.objectid, n.name)));
            }
            ItemType::DIR_INDEX => {
                let Some(Ok(entry)) = DirEntries::new(item.data).next() else { return };
                let location = entry.header.location.get();
                if location.item_type == ItemType::ROOT_ITEM {
                    self.subvolumes.push((key.objectid, key.offset, location.objectid));
                } else {
                    let name = name(key.objectid, key.offset, location.objectid, entry.name);
                    self.entries.push((name, entry.file_type()));
                }
            }
            ItemType::ORPHAN_ITEM => {
                self.orphans.insert(key.offset);
            }
            _ => {}
        }
    }

    fn find(&self, context: &Context<'_>, location: Location, evidence: InodeEvidence) {
        self.has_findings.set(true);
        context.find(location, evidence);
    }

    /// Whether an inode is being deleted.
    fn is_going(&self, ino: u64) -> bool {
        let has_names = self.inodes.get(&ino).is_some_and(|(_, nlink)| *nlink > 0);
        !has_names && self.orphans.contains(&ino)
    }

    fn report_entries(&self, context: &Context<'_>, location: Location) {
        for (name, file_type) in &self.entries {
            let Name { directory, index, target, .. } = name;
            let location = location.inode(*directory);
            if self.is_going(*directory) {
                continue;
            }
            let Some((real_type, _)) = self.inodes.get(target) else {
                let (index, target) = (*index, *target);
                self.find(context, location, InodeEvidence::EntryOfNone { index, target });
                continue;
            };
            if real_type != file_type {
                let evidence = InodeEvidence::EntryType {
                    index: *index,
                    target: *target,
                    found: *file_type,
                    expected: *real_type,
                };
                self.find(context, location, evidence);
            }
            if self.references.binary_search(name).is_err() {
                let (index, target) = (*index, *target);
                self.find(context, location, InodeEvidence::NoReference { index, target });
            }
        }
    }

    fn report_references(&self, context: &Context<'_>, location: Location) {
        for name in &self.references {
            if self.entries.binary_search_by_key(name, |entry| entry.0).is_err() {
                let Name { directory, index, target, .. } = *name;
                let evidence = InodeEvidence::NoEntry { directory, index };
                self.find(context, location.inode(target), evidence);
            }
        }
    }

    fn report_orphans(&self, context: &Context<'_>, location: Location) {
        for (ino, (_, nlink)) in &self.inodes {
            if *nlink == 0 && !self.orphans.contains(ino) {
                self.find(context, location.inode(*ino), InodeEvidence::NoOrphan);
            }
        }
    }

    fn report_subvolumes(&self, context: &Context<'_>, root: &TreeRoot, roots: &RootTree) {
        let is_original = roots.get(root.tree).is_some_and(|entry| !entry.is_snapshot());
        if !is_original || !objectid::is_subvolume(root.tree) {
            return;
        }
        let known: BTreeSet<(u64, u64, u64)> = roots
            .refs
            .iter()
            .filter(|name| name.parent == root.tree)
            .map(|name| (name.dirid, name.sequence, name.child))
            .collect();
        for entry in &self.subvolumes {
            if !known.contains(entry) {
                let (directory, index, subvolume) = *entry;
                let location = Location::tree(root.tree).inode(directory);
                let evidence = InodeEvidence::EntryOfSubvolume { index, subvolume };
                self.find(context, location, evidence);
            }
        }
    }
}
