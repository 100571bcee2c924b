//! What changing trees ask for and report: blocks, and who refers to them.
//!
//! # Invariants
//! - A block that only this tree has is referred to by the tree's id. Children of a block with full
//!   back references are referred to by the block's address, all others by the id of its owner.
//! - Copying a block that several trees share: the first copy made by its owner turns what the block
//!   refers to into full back references, since the owner's id will stand for the copy; any other
//!   copy adds references of its own tree.
//! - Additions are queued before drops, so that no count ever passes through zero on the way.
//!
//! All of this is called while tree blocks are locked. It answers from memory, but for the count of
//! a block that may be shared, which is looked up in the extent tree while the block is held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use larder_btree::{Block, BlockRequest, BlockSpace, Copied, LiveTree, SpaceError, TreeRoot};
use larder_format::item::{EXTENT_FLAG_FULL_BACKREF, FileExtent};
use larder_format::node::HEADER_FLAG_RELOC;
use larder_format::objectid::{TREE_LOG, is_file_tree};
use larder_format::{Header, ItemType, Key, Logical};
use parking_lot::Mutex;

use super::handle::DataOwner;
use super::interval::Alarm;
use crate::error::{Error, Result};
use crate::extent::{ExtentItems, References, Referrer};
use crate::quota::{Quotas, signed};
use crate::refs::{DelayedRefs, ExtentKind, ExtentRef, Hold, Queued};
use crate::space::{Space, SpaceKind};
use crate::tree_items::TreeItems;

/// Space and references of the running transaction, as the trees see them.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) space: Arc<Space>,
    pub(crate) refs: DelayedRefs,
    pub(crate) nodesize: u32,
    pub(crate) skinny_metadata: bool,
    /// Weak: the tree itself leads here.
    extent_tree: OnceLock<Weak<LiveTree>>,
    /// What subvolumes refer to, if quotas are on.
    quotas: OnceLock<Arc<Quotas>>,
    /// Blocks of the running transaction that nothing refers to any more.
    dissolved: Mutex<Vec<Logical>>,
    /// Blocks of log trees.
    log_blocks: Mutex<BTreeSet<Logical>>,
    /// Trees whose root block is another than their root item says.
    pub(crate) moved_roots: Mutex<BTreeMap<u64, TreeRoot>>,
    /// Something was allocated since the last commit.
    pub(crate) is_changed: AtomicBool,
    /// Wakes the thread that commits.
    pub(super) alarm: Alarm,
}

/// A back reference as one end sees it: who refers.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The tree of this id.
    Tree(u64),
    /// The block at this address.
    Block(Logical),
}

impl Accounting {
    pub(crate) fn new(space: Arc<Space>, nodesize: u32, skinny_metadata: bool) -> Self {
        Self {
            space,
            refs: DelayedRefs::default(),
            nodesize,
            skinny_metadata,
            extent_tree: OnceLock::new(),
            quotas: OnceLock::new(),
            dissolved: Mutex::default(),
            log_blocks: Mutex::default(),
            moved_roots: Mutex::default(),
            is_changed: AtomicBool::new(false),
            alarm: Alarm::default(),
        }
    }

    /// Says which tree has the extent items. Once, before any tree changes.
    pub(crate) fn set_extent_tree(&self, tree: &Arc<LiveTree>) {
        let first = self.extent_tree.set(Arc::downgrade(tree));
        first.expect("a file system has one extent tree");
    }

    /// Has what subvolumes refer to counted. Once, before any tree changes.
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        self.quotas.set(Arc::new(quotas)).expect("they are read once");
    }

    /// What subvolumes refer to, if quotas are on.
    pub(crate) fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.quotas.get()
    }

    fn extent_tree(&self) -> Arc<LiveTree> {
        self.extent_tree.get().and_then(Weak::upgrade).expect("set when opening")
    }

    /// The extent tree's rules in the transaction `generation`.
    pub(crate) fn extent_items(&self, generation: u64) -> ExtentItems {
        let Self { nodesize, skinny_metadata, .. } = *self;
        ExtentItems { nodesize, skinny_metadata, generation }
    }

    /// How a tree block is named by references to it.
    pub(crate) fn block_ref(&self, block: &Block) -> ExtentRef {
        self.block_ref_at(block.logical(), block)
    }

    /// How the tree block at `logical` is named, which has the keys of `block`.
    fn block_ref_at(&self, logical: Logical, block: &Block) -> ExtentRef {
        let (level, first_key) = (block.level(), block.node().first_key().unwrap_or(Key::MIN));
        let kind = ExtentKind::TreeBlock { level, first_key };
        ExtentRef { logical, len_bytes: u64::from(self.nodesize), kind }
    }

    /// Counts the references of a block that is held.
    pub(crate) fn references(&self, block: ExtentRef, hold: &Hold<'_>) -> Result<References> {
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.references(&tree, block.logical, block.len_bytes, block.kind)?;
        let pending = hold.pending();
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

    /// Whether `referrer` has all references to data, as far as is seen without reading references
    /// with keys of their own.
    pub(crate) fn has_all_references(&self, data: ExtentRef, referrer: Referrer) -> Result<bool> {
        let hold = self.refs.hold(data.logical);
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.data_references(&tree, data.logical, data.len_bytes, referrer)?;
        let (all, own) = stored.unwrap_or_default();
        let (net, own_change) =
            hold.pending().map_or((0, 0), |head| (head.net(), head.change_of(referrer)));
        let (all, own) = (all.checked_add_signed(net), own.checked_add_signed(own_change));
        Ok(all.is_some_and(|all| all > 0) && all == own)
    }

    /// Drops a reference to a tree block. Others may be on their way to it: a block that snapshots may
    /// share is replaced without being locked.
    pub(crate) fn drop_block(&self, block: ExtentRef, referrer: Referrer) -> Result<()> {
        match self.refs.change(block, referrer, -1) {
            Queued::Pending => Ok(()),
            Queued::Dissolved => self.dissolve(block),
        }
    }

    /// Notes that a tree block came and went in this transaction.
    fn dissolve(&self, block: ExtentRef) -> Result<()> {
        self.dissolved.lock().push(block.logical);
        self.space.abandoned(&range_of(block))
    }

    /// Forgets the blocks that came and went in this transaction, so that they are not written. The
    /// door is closed: nobody is on the way to any.
    pub(crate) fn forget_dissolved(&self) {
        let trees = self.extent_tree();
        for logical in std::mem::take(&mut *self.dissolved.lock()) {
            trees.forget_block(logical);
        }
    }

    /// Forgets the blocks of logs that nothing leads to any more. The last superblock may still lead to
    /// them.
    pub(crate) fn give_up_log_blocks(&self) -> Result<()> {
        let trees = self.extent_tree();
        for logical in std::mem::take(&mut *self.log_blocks.lock()) {
            trees.forget_block(logical);
            self.space.abandoned(&(logical.0..logical.0 + u64::from(self.nodesize)))?;
        }
        Ok(())
    }

    /// Gives up a block of a log that goes on.
    fn drop_log_block(&self, logical: Logical) -> Result<()> {
        self.log_blocks.lock().remove(&logical);
        self.space.abandoned(&(logical.0..logical.0 + u64::from(self.nodesize)))
    }

    /// Adds one reference to all that `block` refers to (`count` is 1), or drops one (-1). They are
    /// by the address of the block if `is_full`, and else by the id of its owner.
    pub(crate) fn change_children(&self, block: &Block, is_full: bool, count: i64) -> Result<()> {
        self.change_children_of(block.header(), block, is_full, count)
    }

    /// As [`change_children`](Self::change_children), for the block with this header that refers to what `block`
    /// refers to.
    fn change_children_of(
        &self,
        header: &Header,
        block: &Block,
        is_full: bool,
        count: i64,
    ) -> Result<()> {
        let by = if is_full { By::Block(header.bytenr()) } else { By::Tree(header.owner.get()) };
        let dissolved = self.refs.change_all(&self.children(block, by)?, count);
        debug_assert!(count < 0 || dissolved.is_empty(), "what gets a reference stays");
        dissolved.into_iter().try_for_each(|child| self.dissolve(child))
    }

    /// What a block refers to: its children, or the data of files.
    fn children(&self, block: &Block, by: By) -> Result<Vec<(ExtentRef, Referrer)>> {
        let node = block.node();
        if let Some(level) = block.level().checked_sub(1) {
            let referrer = match by {
                By::Tree(root) => Referrer::Tree { root },
                By::Block(parent) => Referrer::Block { parent: parent.0 },
            };
            let child = |pointer: &larder_format::node::KeyPointer| {
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
    fn replace(&self, copied: &Copied<'_>) -> Result<()> {
        let (old, root) = (self.block_ref_at(copied.old.bytenr(), copied.new), copied.tree);
        let referrer = Referrer::Tree { root };
        // Relocation leaves blocks with full back references behind, whenever they were written.
        let is_relocated = copied.old.flags() & HEADER_FLAG_RELOC != 0;
        let may_be_shared = copied.old_may_be_shared || is_relocated;
        if !may_be_shared || !is_file_tree(root) {
            self.count_dropped(root, false);
            return self.drop_block(old, referrer);
        }
        let hold = self.refs.hold(old.logical);
        let References { count, flags } = self.references(old, &hold)?;
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
        self.count_dropped(root, count > 1);
        self.drop_block(old, referrer)
    }
}

// For quotas.
impl Accounting {
    /// Queues the first reference of a file to data.
    pub(crate) fn add_new_data(&self, data: ExtentRef, file: DataOwner) {
        self.refs.add_new(data, file.into(), 1);
        if let Some(quotas) = self.quotas() {
            let len_bytes = signed(data.len_bytes);
            quotas.change(file.root, len_bytes, len_bytes);
        }
    }

    /// Queues one more reference of a file to data (`count` is 1), or one less (-1).
    pub(crate) fn change_data(&self, data: ExtentRef, file: DataOwner, count: i64) {
        let Some(quotas) = self.quotas().filter(|quotas| quotas.has(file.root)) else {
            let _ = self.refs.change(data, file.into(), count);
            return;
        };
        // Two who drop the last two references must not both find the other's.
        let hold = self.refs.hold(data.logical);
        let before = self.data_references_of(data, file.root, &hold);
        let _ = self.refs.change(data, file.into(), count);
        drop(hold);
        // What cannot be read is not counted: running the reference will fail on it.
        let Ok((all, own)) = before else { return };
        let after = own.saturating_add(count);
        let (begins, ends) = (own <= 0 && after > 0, own > 0 && after <= 0);
        if begins || ends {
            let len_bytes = count.signum() * signed(data.len_bytes);
            let is_exclusive = all == own;
            quotas.change(file.root, len_bytes, if is_exclusive { len_bytes } else { 0 });
        }
    }

    /// How many references data has, and how many of them are of files in the subvolume `root`, as far as is
    /// seen without reading references with keys of their own.
    fn data_references_of(
        &self,
        data: ExtentRef,
        root: u64,
        hold: &Hold<'_>,
    ) -> Result<(i64, i64)> {
        let items = self.extent_items(0);
        let tree = TreeItems::new(self.extent_tree());
        let stored = items.subvolume_references(&tree, data.logical, data.len_bytes, root)?;
        let (all, own) = stored.unwrap_or_default();
        let (net, own_change) =
            hold.pending().map_or((0, 0), |head| (head.net(), head.change_of_subvolume(root)));
        Ok((signed(all).saturating_add(net), signed(own).saturating_add(own_change)))
    }

    fn count_dropped(&self, tree: u64, is_shared: bool) {
        if let Some(quotas) = self.quotas() {
            quotas.block_dropped(tree, is_shared);
        }
    }
}

fn range_of(extent: ExtentRef) -> Range<u64> {
    extent.logical.0..extent.logical.0 + extent.len_bytes
}

/// The data that a file extent item refers to, and the file offset at which it would begin; none for
/// inline data and holes.
fn data_extent(tree: u64, key: Key, data: &[u8]) -> Result<Option<(ExtentRef, u64)>> {
    let extent = FileExtent::parse(data).map_err(|problem| Error::item(tree, key, problem))?;
    let FileExtent::Regular { extent, .. } = extent else { return Ok(None) };
    let Some(logical) = extent.disk_bytenr() else { return Ok(None) };
    let len_bytes = extent.disk_num_bytes.get();
    let file_offset = key.offset.wrapping_sub(extent.offset.get());
    Ok(Some((ExtentRef { logical, len_bytes, kind: ExtentKind::Data }, file_offset)))
}

impl BlockSpace for Accounting {
    fn allocate(&self, request: &BlockRequest) -> Result<Logical, SpaceError> {
        self.is_changed.store(true, Relaxed);
        let kind = SpaceKind::of_tree(request.tree);
        let logical = self.space.allocate_block(kind)?;
        if request.tree == TREE_LOG {
            self.log_blocks.lock().insert(logical);
        } else {
            let &BlockRequest { tree, level, first_key, .. } = request;
            let kind = ExtentKind::TreeBlock { level, first_key };
            let block = ExtentRef { logical, len_bytes: u64::from(self.nodesize), kind };
            self.refs.add_new(block, Referrer::Tree { root: tree }, 1);
            self.alarm.block_added();
            if let Some(quotas) = self.quotas() {
                quotas.block_added(tree);
            }
        }
        Ok(logical)
    }

    fn copied(&self, copied: &Copied<'_>) -> Result<(), SpaceError> {
        if copied.tree == TREE_LOG {
            self.drop_log_block(copied.old.bytenr())?;
        } else if copied.old_is_replaced {
            self.replace(copied)?;
        } else {
            self.change_children(copied.new, false, 1)?;
        }
        Ok(())
    }

    fn freed(&self, tree: u64, block: &Block) {
        let named = self.block_ref(block);
        let freed = if tree == TREE_LOG {
            self.drop_log_block(named.logical)
        } else {
            self.count_dropped(tree, false);
            // It was locked, and so was what led to it: nobody is on the way.
            match self.refs.change(named, Referrer::Tree { root: tree }, -1) {
                Queued::Pending => Ok(()),
                Queued::Dissolved => self.space.unused(&range_of(named)),
            }
        };
        freed.expect("a block of the running transaction lies in a block group");
    }

    fn root_changed(&self, root: TreeRoot) {
        self.space.note_level(root.level);
        self.moved_roots.lock().insert(root.tree, root);
    }
}
