//! The log trees that a crash left.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_btree::{Block, Readahead, Tree, TreeRoot};
use larder_format::item::{FileExtent, RootItem};
use larder_format::node::MAX_LEVELS;
use larder_format::objectid::{TREE_LOG, is_subvolume};
use larder_format::{FormatError, ItemType, Key, Logical, Superblock};

use crate::error::{Error, Result};
use crate::space::{Space, SpaceKind};

/// The log of one subvolume.
#[derive(Clone, Debug)]
pub struct FoundLog {
    /// Id of the subvolume.
    pub subvolume: u64,
    /// Its log tree.
    pub tree: Tree,
}

/// All logs, and the data without an extent item when they were found.
#[derive(Debug, Default)]
pub(super) struct FoundLogs {
    pub(super) logs: Vec<FoundLog>,
    pub(super) data: ClaimedData,
}

/// Data that was claimed for a log: the length of each extent by its start, and whether it was
/// referred to since.
pub(super) type ClaimedData = BTreeMap<u64, (u64, bool)>;

/// Removes the extents of logs from the free space.
struct Claims<'a> {
    space: &'a Space,
    nodesize: u64,
    data: ClaimedData,
}

impl FoundLogs {
    /// Finds the logs that the superblock of the last commit leads to, and claims their extents.
    pub(super) fn find(
        cache: &std::sync::Arc<larder_btree::BlockCache>,
        superblock: &Superblock,
        space: &Space,
    ) -> Result<Self> {
        let root = TreeRoot {
            tree: TREE_LOG,
            logical: Logical(superblock.log_root.get()),
            level: superblock.log_root_level,
            // The log belongs to the transaction that the crash cut off.
            generation: superblock.generation.get() + 1,
        };
        let nodesize = u64::from(superblock.nodesize.get());
        let mut claims = Claims { space, nodesize, data: ClaimedData::default() };
        let roots = Tree::new(cache.clone(), root);
        claims.claim_tree(&roots)?;
        let mut logs = Vec::new();
        let mut items = roots.range(.., Readahead::None);
        while let Some((key, data)) = items.next_item()? {
            let tree = Tree::new(cache.clone(), log_root(key, data)?);
            claims.claim_tree(&tree)?;
            logs.push(FoundLog { subvolume: key.offset, tree });
        }
        Ok(Self { logs, data: claims.data })
    }
}

/// The root of the log tree in an item of the tree of log trees.
fn log_root(key: Key, data: &[u8]) -> Result<TreeRoot> {
    let wrong = |problem| Error::item(TREE_LOG, key, FormatError::invalid("log tree", problem));
    if (key.objectid, key.item_type) != (TREE_LOG, ItemType::ROOT_ITEM) {
        return Err(wrong("the tree of log trees has other items"));
    }
    if !is_subvolume(key.offset) {
        return Err(wrong("its subvolume does not exist"));
    }
    let item = RootItem::parse(data).map_err(|problem| Error::item(TREE_LOG, key, problem))?;
    if usize::from(item.level) >= MAX_LEVELS {
        return Err(wrong("its level is over 7"));
    }
    Ok(TreeRoot::of_item(TREE_LOG, &item))
}

impl Claims<'_> {
    fn claim_tree(&mut self, tree: &Tree) -> Result<()> {
        self.claim_block(tree.root().logical)?;
        self.enter(tree, &tree.root_block()?, None)
    }

    /// Claims everything below a block. Levels fall, and each block is claimed once, so that it
    /// ends.
    fn enter(&mut self, tree: &Tree, block: &Block, upper: Option<Key>) -> Result<()> {
        let node = block.node();
        if node.is_leaf() {
            return self.claim_data(block);
        }
        for (slot, pointer) in node.key_pointers().iter().enumerate() {
            self.claim_block(pointer.blockptr())?;
            let child = tree.child(block, slot, upper)?.block;
            let next = node.key_pointers().get(slot + 1);
            self.enter(tree, &child, next.map(|next| next.key.get()).or(upper))?;
        }
        Ok(())
    }

    fn claim_block(&self, logical: Logical) -> Result<()> {
        let range = range_of(logical, self.nodesize)?;
        if !self.space.claim_exactly(SpaceKind::Metadata, &range)? {
            return Err(Error::extent(
                logical,
                "a block of a log lies in an extent that is in use",
            ));
        }
        // Free again once a commit has made the log void.
        self.space.abandoned(&range)
    }

    /// Claims the data that a leaf refers to, if it is free.
    fn claim_data(&mut self, leaf: &Block) -> Result<()> {
        let node = leaf.node();
        for (key, data) in
            node.iter_items().filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA)
        {
            let extent =
                FileExtent::parse(data).map_err(|problem| Error::item(TREE_LOG, key, problem))?;
            let FileExtent::Regular { extent, .. } = extent else { continue };
            let Some(logical) = extent.disk_bytenr() else { continue };
            let range = range_of(logical, extent.disk_num_bytes.get())?;
            // Data that is in use already has an extent item of its own, or was claimed before.
            if self.space.claim_exactly(SpaceKind::Data, &range)? {
                self.data.insert(range.start, (range.end - range.start, false));
            }
        }
        Ok(())
    }
}

fn range_of(logical: Logical, len_bytes: u64) -> Result<Range<u64>> {
    let end = logical.0.checked_add(len_bytes).filter(|_| len_bytes > 0);
    let end = end.ok_or_else(|| Error::extent(logical, "a log gives it an impossible length"))?;
    Ok(logical.0..end)
}
