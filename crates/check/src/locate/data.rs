//! The files that use data.

use std::collections::BTreeSet;

use larder_format::item::{BackRef, Extent, FileExtent};
use larder_format::{ItemType, Key, objectid};

use crate::blocks::{BlockReader, Forest, TreeRoot, find_item_from};
use crate::context::Context;
use crate::extents::ExtentTable;

/// Most items of one extent to examine.
const MOST_ITEMS: usize = 64;

pub(super) struct DataUsers<'a, 'v> {
    context: &'a Context<'v>,
    forest: &'a Forest,
    extents: &'a ExtentTable,
    root: Option<&'a TreeRoot>,
}

impl<'a, 'v> DataUsers<'a, 'v> {
    pub(super) fn new(
        context: &'a Context<'v>,
        forest: &'a Forest,
        extents: &'a ExtentTable,
    ) -> Self {
        let root = forest.roots().iter().find(|root| root.tree == objectid::EXTENT_TREE);
        Self { context, forest, extents, root }
    }

    /// The subvolumes and inodes that use the data at an address, up to `most`.
    pub(super) fn of(&self, logical: u64, most: usize) -> BTreeSet<(u64, u64)> {
        let mut users = BTreeSet::new();
        let end = logical.saturating_add(1);
        let extent = self.extents.within(logical, end).iter().find(|extent| extent.is_data());
        let Some((start, root)) = extent.map(|extent| extent.start).zip(self.root) else {
            return users;
        };
        let mut key = Key { objectid: start, ..Key::MIN };
        for _ in 0..MOST_ITEMS {
            let found = find_item_from(self.context, self.forest, root, key);
            let Some((found, data)) = found.filter(|(found, _)| found.objectid == start) else {
                break;
            };
            for back_ref in back_refs(found, &data) {
                self.add(&mut users, start, back_ref);
            }
            key = Key { offset: found.offset.saturating_add(1), ..found };
            if users.len() >= most {
                break;
            }
        }
        users.into_iter().take(most).collect()
    }

    fn add(&self, users: &mut BTreeSet<(u64, u64)>, start: u64, back_ref: BackRef) {
        match back_ref {
            BackRef::Data { root, objectid, .. } => _ = users.insert((root, objectid)),
            BackRef::SharedData { parent, .. } => self.add_of_leaf(users, start, parent),
            _ => {}
        }
    }

    fn add_of_leaf(&self, users: &mut BTreeSet<(u64, u64)>, start: u64, leaf: u64) {
        let Some(leaf) = self.forest.find(leaf).filter(|leaf| self.forest.block(*leaf).level == 0)
        else {
            return;
        };
        let tree = self.forest.block(leaf).tree;
        let mut reader = BlockReader::quiet(self.context);
        reader.read(&[self.forest.wanted(leaf)]);
        let Some(node) = reader.node(0) else { return };
        let items = node.iter_items().filter(|(key, data)| {
            key.item_type == ItemType::EXTENT_DATA
                && matches!(FileExtent::parse(data), Ok(FileExtent::Regular { extent, .. })
                    if extent.disk_bytenr.get() == start)
        });
        users.extend(items.map(|(key, _)| (tree, key.objectid)));
    }
}

fn back_refs(key: Key, data: &[u8]) -> Vec<BackRef> {
    if key.item_type == ItemType::EXTENT_ITEM {
        let Ok(extent) = Extent::parse(key, data) else { return Vec::new() };
        extent.back_refs().flatten().map(|inline| inline.back_ref).collect()
    } else {
        BackRef::parse_keyed(key, data).into_iter().collect()
    }
}
