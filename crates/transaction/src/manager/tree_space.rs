//! The space of tree blocks, as changing trees ask for it and give it back.
//!
//! All of this is called while tree blocks are locked. It answers from memory, except for the
//! reference count of a block that may be shared: that is looked up in the extent tree while the
//! block's ref head is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use larder_btree::{Block, BlockRequest, BlockSpace, Copied, LiveTree, SpaceError, TreeRoot};
use larder_format::Logical;
use larder_format::objectid::TREE_LOG;
use larder_locks::RankedMutex;
use larder_locks::rank::MOVED_ROOTS;
use parking_lot::Mutex;

use super::commit_timer::CommitTimer;
use super::exclusive::Exclusive;
use crate::error::Result;
use crate::extent::{ExtentItems, Referrer};
use crate::quota::Quotas;
use crate::refs::{DelayedRefs, ExtentKind, ExtentRef, Queued};
use crate::space::{Space, SpaceKind};

/// Space and references of the running transaction, as changing trees see them.
#[derive(Debug)]
pub(crate) struct TreeSpace {
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
    /// Trees whose root blocks have moved since their root items were written.
    pub(crate) moved_roots: RankedMutex<BTreeMap<u64, TreeRoot>, MOVED_ROOTS>,
    /// Something was allocated since the last commit.
    pub(crate) is_changed: AtomicBool,
    /// Wakes the thread that commits.
    pub(super) timer: CommitTimer,
}

impl TreeSpace {
    pub(crate) fn new(space: Arc<Space>, nodesize: u32, skinny_metadata: bool) -> Self {
        Self {
            refs: DelayedRefs::new(space.clone()),
            space,
            nodesize,
            skinny_metadata,
            extent_tree: OnceLock::new(),
            quotas: OnceLock::new(),
            dissolved: Mutex::default(),
            log_blocks: Mutex::default(),
            moved_roots: RankedMutex::default(),
            is_changed: AtomicBool::new(false),
            timer: CommitTimer::default(),
        }
    }

    /// Sets the extent tree. Once, before any tree changes.
    pub(crate) fn set_extent_tree(&self, tree: &Arc<LiveTree>) {
        let first = self.extent_tree.set(Arc::downgrade(tree));
        first.expect("a file system has one extent tree");
    }

    /// Turns quotas on. Once, before any tree changes.
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        self.quotas.set(Arc::new(quotas)).expect("they are read once");
    }

    /// What subvolumes refer to, if quotas are on.
    pub(crate) fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.quotas.get()
    }

    pub(super) fn extent_tree(&self) -> Arc<LiveTree> {
        self.extent_tree.get().and_then(Weak::upgrade).expect("set when opening")
    }

    /// The extent tree's rules in the transaction `generation`.
    pub(crate) fn extent_items(&self, generation: u64) -> ExtentItems {
        let Self { nodesize, skinny_metadata, .. } = *self;
        ExtentItems { nodesize, skinny_metadata, generation }
    }

    /// Notes that a tree block came and went in this transaction.
    pub(super) fn dissolve(&self, block: ExtentRef) -> Result<()> {
        self.dissolved.lock().push(block.logical);
        self.space.abandoned(&range_of(block))
    }

    /// Drops the blocks that came and went in this transaction, so that they are not written. No
    /// thread is on its way to one.
    pub(crate) fn forget_dissolved(&self, _: &Exclusive<'_>) {
        let trees = self.extent_tree();
        for logical in std::mem::take(&mut *self.dissolved.lock()) {
            trees.forget_block(logical);
        }
    }

    /// Frees the blocks of logs, after nothing in memory leads to them. The last superblock may
    /// still lead to them.
    pub(crate) fn give_up_log_blocks(&self) -> Result<()> {
        let trees = self.extent_tree();
        for logical in std::mem::take(&mut *self.log_blocks.lock()) {
            trees.forget_block(logical);
            self.space.abandoned(&(logical.0..logical.0 + u64::from(self.nodesize)))?;
        }
        Ok(())
    }

    /// Frees a block of a log that stays in use.
    fn drop_log_block(&self, logical: Logical) -> Result<()> {
        self.log_blocks.lock().remove(&logical);
        self.space.abandoned(&(logical.0..logical.0 + u64::from(self.nodesize)))
    }

    pub(super) fn count_dropped_block(&self, tree: u64, is_shared: bool) {
        self.space.block_dropped(tree);
        if let Some(quotas) = self.quotas() {
            quotas.block_dropped(tree, is_shared);
        }
    }
}

fn range_of(extent: ExtentRef) -> Range<u64> {
    extent.logical.0..extent.logical.0 + extent.len_bytes
}

impl BlockSpace for TreeSpace {
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
            self.timer.note_new_block();
            self.space.block_added(tree);
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
            self.count_dropped_block(tree, false);
            // It was locked, and so was its parent: no thread is on its way to it.
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
