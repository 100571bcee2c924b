//! Block groups.

use larder_format::item::BlockGroupItem;
use larder_format::{BlockGroupFlags, ItemType, objectid, read_exact_item};

use crate::blocks::{Forest, Item, TreeRoot, for_each_item};
use crate::context::Context;
use crate::evidence::{ItemEvidence, SpaceEvidence};

/// A block group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGroup {
    pub(crate) tree: u64,
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) flags: BlockGroupFlags,
}

impl BlockGroup {
    /// The address after the last.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.len_bytes)
    }
}

/// All block groups in order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct BlockGroups {
    pub(crate) groups: Vec<BlockGroup>,
    /// Whether all of the tree with block groups could be read.
    pub(crate) is_whole: bool,
}

impl BlockGroups {
    /// Reads the block group tree.
    pub(crate) fn read(
        &mut self,
        context: &Context<'_>,
        forest: &mut Forest,
        root: &TreeRoot,
    ) -> bool {
        for_each_item(context, forest, root, |item| match item.key.item_type {
            ItemType::BLOCK_GROUP_ITEM => self.add(context, &item),
            other => {
                let unexpected =
                    ItemEvidence::Unexpected { found: other, tree: "block group tree" };
                item.find(context, unexpected);
            }
        })
    }

    /// Adds the block group of an item.
    pub(crate) fn add(&mut self, context: &Context<'_>, item: &Item<'_>) {
        let group = match read_exact_item::<BlockGroupItem>(item.data) {
            Ok(group) => group,
            Err(error) => return item.find(context, ItemEvidence::Format { problem: error }),
        };
        let (start, len_bytes) = (item.key.objectid, item.key.offset);
        if group.chunk_objectid.get() != objectid::FIRST_CHUNK_TREE {
            let found = group.chunk_objectid.get();
            item.find(context, ItemEvidence::BlockGroupChunk { found });
        }
        let used_bytes = group.used.get();
        if used_bytes > len_bytes {
            item.find(context, SpaceEvidence::UsedOf { used_bytes, len_bytes });
        }
        let (tree, flags) = (item.tree, group.flags());
        self.groups.push(BlockGroup { tree, start, len_bytes, used_bytes, flags });
    }

    /// The group that starts at `start`.
    pub(crate) fn get(&self, start: u64) -> Option<&BlockGroup> {
        let index = self.groups.binary_search_by_key(&start, |group| group.start).ok()?;
        Some(&self.groups[index])
    }
}
