//! References to tree blocks, and from tree blocks to others and to data.
//!
//! # Invariants
//! - The id of its tree refers to a block that only this tree has. The address of a block with full
//!   back references refers to its children; the id of its owner refers to the children of any
//!   other block.
//! - When a tree copies a shared block that it owns, the first such copy turns the references from
//!   the old block into full back references, since the owner's id will refer from the copy. Any
//!   other copy adds references from its own tree.
//! - Additions are queued before drops, so that no count passes through zero on the way.

use larder_btree::{Block, Copied};
use larder_format::item::{EXTENT_FLAG_FULL_BACKREF, FileExtent};
use larder_format::node::{HEADER_FLAG_RELOC, KeyPointer};
use larder_format::objectid::is_file_tree;
use larder_format::{Header, ItemType, Key, Logical};

use super::tree_space::TreeSpace;
use crate::error::{Error, Result};
use crate::extent::{References, Referrer};
use crate::refs::{ExtentKind, ExtentRef, HeadLock, Queued};
use crate::tree_items::TreeItems;

/// The origin of a back reference.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The tree of this id.
    Tree(u64),
    /// The block at this address.
    Block(Logical),
}

impl TreeSpace {
    /// The referrer of a tree block's children.
    pub(crate) fn block_ref(&self, block: &Block) -> ExtentRef {
        self.block_ref_at(block.logical(), block)
    }

    /// The referrer for the tree block at `logical`, which has the keys of `block`.
    fn block_ref_at(&self, logical: Logical, block: &Block) -> ExtentRef {
        let (level, first_key) = (block.level(), block.node().first_key().unwrap_or(Key::MIN));
        let kind = ExtentKind::TreeBlock { level, first_key };
        ExtentRef { logical, len_bytes: u64::from(self.nodesize), kind }
    }

    /// Counts the references of a block whose ref head is locked.
    pub(crate) fn references(&self, block: ExtentRef, head: &HeadLock<'_>) -> Result<References> {
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.references(&tree, block.logical, block.len_bytes, block.kind)?;
        let pending = head.pending();
        if stored.is_none() && !pending.as_ref().is_some_and(|head| head.is_new) {
            return Err(Error::extent(block.logical, "a tree refers to it but it has no item"));
        }
        let mut references = stored.unwrap_or(References { count: 0, flags: 0 });
        if let Some(head) = pending {
            let count = references.count.checked_add_signed(head.net());
            references.count = count.filter(|count| *count > 0).ok_or_else(|| {
                Error::extent(block.logical, "a tree refers to it but its references are used up")
            })?;
            if head.sets_full_backref {
                references.flags |= EXTENT_FLAG_FULL_BACKREF;
            }
        }
        Ok(references)
    }

    /// Drops a reference to a tree block. Other threads may be on their way to it: a tree replaces
    /// a block that snapshots may share without locking it.
    pub(crate) fn drop_block(&self, block: ExtentRef, referrer: Referrer) -> Result<()> {
        match self.refs.change(block, referrer, -1) {
            Queued::Pending => Ok(()),
            Queued::Dissolved => self.dissolve(block),
        }
    }

    /// Adds one reference to everything that `block` refers to (`count` is 1), or drops one (-1).
    /// They are by the address of the block if `is_full`, and otherwise by the id of its owner.
    /// Returns how many it changed.
    pub(crate) fn change_children(&self, block: &Block, is_full: bool, count: i64) -> Result<u64> {
        self.change_children_of(block.header(), block, is_full, count)
    }

    /// Like [`change_children`](Self::change_children), for a block with this header and the
    /// references of `block`.
    fn change_children_of(
        &self,
        header: &Header,
        block: &Block,
        is_full: bool,
        count: i64,
    ) -> Result<u64> {
        let by = if is_full { By::Block(header.bytenr()) } else { By::Tree(header.owner.get()) };
        let children = self.children(block, by)?;
        let dissolved = self.refs.change_all(&children, count);
        debug_assert!(count < 0 || dissolved.is_empty(), "what gets a reference stays");
        dissolved.into_iter().try_for_each(|child| self.dissolve(child))?;
        Ok(children.len() as u64)
    }

    /// What a block refers to, and by what: by the address `full` of a block with full back
    /// references, or otherwise by the owner.
    pub(crate) fn referred_by(
        &self,
        block: &Block,
        full: Option<Logical>,
    ) -> Result<Vec<(ExtentRef, Referrer)>> {
        self.children(block, full.map_or(By::Tree(block.header().owner.get()), By::Block))
    }

    /// The blocks or the data that a block refers to.
    fn children(&self, block: &Block, by: By) -> Result<Vec<(ExtentRef, Referrer)>> {
        let node = block.node();
        if let Some(level) = block.level().checked_sub(1) {
            let referrer = match by {
                By::Tree(root) => Referrer::Tree { root },
                By::Block(parent) => Referrer::Block { parent: parent.0 },
            };
            let child = |pointer: &KeyPointer| {
                let kind = ExtentKind::TreeBlock { level, first_key: pointer.key.get() };
                let len_bytes = u64::from(self.nodesize);
                (ExtentRef { logical: pointer.blockptr(), len_bytes, kind }, referrer)
            };
            return Ok(node.key_pointers().iter().map(child).collect());
        }
        let mut children = Vec::new();
        for (key, data) in
            node.iter_items().filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA)
        {
            let owner = block.header().owner.get();
            let extent = data_extent(owner, key, data)?;
            children.extend(extent.map(|(child, file_offset)| {
                let referrer = match by {
                    By::Tree(root) => {
                        Referrer::File { root, inode: key.objectid, offset: file_offset }
                    }
                    By::Block(parent) => Referrer::Leaf { parent: parent.0 },
                };
                (child, referrer)
            }));
        }
        Ok(children)
    }

    /// Moves references when a tree has copied a block: see the invariants above.
    pub(super) fn replace(&self, copied: &Copied<'_>) -> Result<()> {
        let (old, root) = (self.block_ref_at(copied.old.bytenr(), copied.new), copied.tree);
        let referrer = Referrer::Tree { root };
        // Relocation leaves blocks with full back references, whenever they were written.
        let is_relocated = copied.old.flags() & HEADER_FLAG_RELOC != 0;
        let may_be_shared = copied.old_may_be_shared || is_relocated;
        if !may_be_shared || !is_file_tree(root) {
            self.count_dropped_block(root, false);
            return self.drop_block(old, referrer);
        }
        let head = self.refs.lock_head(old.logical);
        let References { count, flags } = self.references(old, &head)?;
        let is_full = flags & EXTENT_FLAG_FULL_BACKREF != 0;
        if count > 1 && copied.old.owner.get() == root && !is_full {
            self.change_children_of(copied.old, copied.new, true, 1)?;
            self.refs.set_full_backref(old);
        } else if count > 1 || is_full {
            self.change_children(copied.new, false, 1)?;
        }
        if count == 1 && is_full {
            self.change_children_of(copied.old, copied.new, true, -1)?;
        }
        self.count_dropped_block(root, count > 1);
        self.drop_block(old, referrer)
    }
}

/// The data that a file extent item refers to, and the file offset at which it would begin; none
/// for inline data and holes.
fn data_extent(tree: u64, key: Key, data: &[u8]) -> Result<Option<(ExtentRef, u64)>> {
    let extent = FileExtent::parse(data).map_err(|problem| Error::item(tree, key, problem))?;
    let FileExtent::Regular { extent, .. } = extent else { return Ok(None) };
    let Some(logical) = extent.disk_bytenr() else { return Ok(None) };
    let len_bytes = extent.disk_num_bytes.get();
    let file_offset = key.offset.wrapping_sub(extent.offset.get());
    Ok(Some((ExtentRef { logical, len_bytes, kind: ExtentKind::Data }, file_offset)))
}
