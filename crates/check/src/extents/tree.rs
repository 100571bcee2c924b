//! The extent tree: its items one by one, and the table of extents.

use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::item::{
    BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK, Extent,
};
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, Key};

use super::references;
use super::table::{ExtentRecord, ExtentTable};
use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ExtentEvidence, ItemEvidence};
use crate::space::BlockGroups;

/// Reads the extent tree, and the block groups in it.
pub(crate) fn read(
    context: &Context<'_>,
    forest: &mut Forest,
    root: &TreeRoot,
    groups: &mut BlockGroups,
) -> ExtentTable {
    let mut reader = Reader { context, table: ExtentTable::default(), current: None, end: 0 };
    let is_whole = for_each_item(context, forest, root, |item| match item.key.item_type {
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => reader.extent(&item),
        ItemType::TREE_BLOCK_REF
        | ItemType::SHARED_BLOCK_REF
        | ItemType::EXTENT_DATA_REF
        | ItemType::SHARED_DATA_REF => reader.keyed(&item),
        ItemType::BLOCK_GROUP_ITEM
            if !context.superblock.compat_ro_flags().contains(CompatRoFlags::BLOCK_GROUP_TREE) =>
        {
            groups.add(context, &item);
        }
        other => {
            let unexpected = ItemEvidence::Unexpected { found: other, tree: "extent tree" };
            item.find(context, unexpected);
        }
    });
    reader.finish();
    // If leaves are out of order, which is reported, lookups do not work.
    let is_sorted = reader.table.records.is_sorted_by_key(|record| record.start);
    reader.table.is_whole = is_whole && is_sorted;
    reader.table
}

/// An extent whose keyed references may follow.
struct Current {
    key: Key,
    leaf: u64,
    tree: u64,
    refs: u64,
    counted: u64,
}

struct Reader<'c, 'v> {
    context: &'c Context<'v>,
    table: ExtentTable,
    current: Option<Current>,
    /// Where the last extent ends.
    end: u64,
}

impl Reader<'_, '_> {
    fn extent(&mut self, item: &Item<'_>) {
        self.finish();
        let extent = match Extent::parse(item.key, item.data) {
            Ok(extent) => extent,
            Err(error) => {
                return item.find(self.context, ItemEvidence::Format { problem: error });
            }
        };
        if let Some(problem) = self.problem(item, &extent) {
            item.find(self.context, problem);
        }
        let Key { objectid: start, offset, item_type } = item.key;
        let (len_bytes, level) = if item_type == ItemType::METADATA_ITEM {
            (self.context.nodesize as u64, offset.min(u64::from(u8::MAX)) as u8)
        } else {
            (offset, extent.tree_block_info.map_or(0, |info| info.level))
        };
        if start < self.end {
            item.find(self.context, ExtentEvidence::Overlap { previous_end: self.end });
        }
        let (generation, flags) = (extent.item.generation.get(), extent.item.flags.get());
        let record = ExtentRecord::new(start, len_bytes, generation, flags, level);
        self.end = self.end.max(record.end());
        self.table.records.push(record);
        let Item { tree, leaf, key, .. } = *item;
        self.current = Some(Current { key, leaf, tree, refs: extent.item.refs.get(), counted: 0 });
        self.inline(item, &extent);
    }

    fn problem(&self, item: &Item<'_>, extent: &Extent<'_>) -> Option<ExtentEvidence> {
        let Key { objectid: start, offset, item_type } = item.key;
        let (flags, nodesize) = (extent.item.flags.get(), self.context.nodesize as u64);
        let kind = flags & !EXTENT_FLAG_FULL_BACKREF;
        let is_skinny = item_type == ItemType::METADATA_ITEM;
        if !self.context.is_aligned(start) {
            Some(ExtentEvidence::Unaligned)
        } else if is_skinny && !self.context.has(IncompatFlags::SKINNY_METADATA) {
            Some(ExtentEvidence::SkinnyWithoutFeature)
        } else if is_skinny && offset >= MAX_LEVELS as u64 {
            Some(ExtentEvidence::Level { found: offset })
        } else if !is_skinny && (offset == 0 || !self.context.is_aligned(offset)) {
            Some(ExtentEvidence::Len { found_bytes: offset })
        } else if kind != EXTENT_FLAG_DATA && kind != EXTENT_FLAG_TREE_BLOCK {
            Some(ExtentEvidence::Flags { found: flags })
        } else if kind == EXTENT_FLAG_DATA && (is_skinny || flags != EXTENT_FLAG_DATA) {
            Some(ExtentEvidence::DataWithTreeFields)
        } else if kind == EXTENT_FLAG_TREE_BLOCK && !is_skinny && offset != nodesize {
            Some(ExtentEvidence::BlockLen { found_bytes: offset })
        } else if extent.item.generation.get() > self.context.generation() {
            Some(ExtentEvidence::Generation { found: extent.item.generation.get() })
        } else {
            extent.item.refs.get().eq(&0).then_some(ExtentEvidence::NoReferences)
        }
    }

    fn inline(&mut self, item: &Item<'_>, extent: &Extent<'_>) {
        let mut before: Option<BackRef> = None;
        for back_ref in extent.back_refs() {
            let back_ref = match back_ref {
                Ok(back_ref) => back_ref.back_ref,
                Err(error) => {
                    return item.find(self.context, ItemEvidence::Format { problem: error });
                }
            };
            let rank =
                |back_ref: BackRef| (back_ref.item_type(), std::cmp::Reverse(back_ref.sequence()));
            if before.is_some_and(|before| rank(before) > rank(back_ref)) {
                item.find(self.context, ExtentEvidence::InlineOrder);
            }
            before = Some(back_ref);
            self.count(item, back_ref);
        }
    }

    fn keyed(&mut self, item: &Item<'_>) {
        if self.current.as_ref().is_none_or(|current| current.key.objectid != item.key.objectid) {
            return item.find(self.context, ExtentEvidence::OfNoExtent);
        }
        match BackRef::parse_keyed(item.key, item.data) {
            Ok(back_ref) => {
                if back_ref.sequence() != item.key.offset {
                    let expected = back_ref.sequence();
                    item.find(self.context, ItemEvidence::Offset { expected });
                }
                self.count(item, back_ref);
            }
            Err(error) => item.find(self.context, ItemEvidence::Format { problem: error }),
        }
    }

    fn count(&mut self, item: &Item<'_>, back_ref: BackRef) {
        let index = self.table.records.len() - 1;
        let record = &self.table.records[index];
        let is_tree = matches!(back_ref, BackRef::TreeBlock { .. } | BackRef::SharedBlock { .. });
        if is_tree != record.is_tree_block() {
            let other = ExtentEvidence::ReferenceOfOtherKind { found: back_ref };
            item.find(self.context, other);
        }
        if let BackRef::Owner { root } = back_ref {
            if self.context.has(IncompatFlags::SIMPLE_QUOTA) {
                self.table.owners.push((index, root));
            } else {
                item.find(self.context, ExtentEvidence::OwnerWithoutSimpleQuotas);
            }
            return;
        }
        if let BackRef::Data { count: 0, .. } | BackRef::SharedData { count: 0, .. } = back_ref {
            item.find(self.context, ExtentEvidence::ReferenceOfNone);
        }
        record.credit(references::fingerprint(self.context, &back_ref), back_ref.count());
        if let Some(current) = &mut self.current {
            current.counted = current.counted.saturating_add(u64::from(back_ref.count()));
        }
    }

    /// Ends the current extent after its last reference.
    fn finish(&mut self) {
        let Some(Current { key, leaf, tree, refs, counted }) = self.current.take() else { return };
        if refs != counted {
            let count = ExtentEvidence::ReferenceCount { found: refs, expected: counted };
            self.context.find_item(tree, leaf, key, count);
        }
    }
}
