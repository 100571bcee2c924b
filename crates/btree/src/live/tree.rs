//! A tree that changes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use larder_format::node::{BACKREF_REV_MIXED, BACKREF_REV_SHIFT, Header};
use larder_format::{Key, Logical};
use zerocopy::FromBytes;

use super::block::{LiveBlock, is_written};
use super::error::ChangeError;
use super::finger::Fingers;
use super::forest::{InMemory, Shared};
use super::path::ROOT_POINTER_LEVEL;
use super::space::{BlockRequest, Copied};
use crate::block::Block;
use crate::expected::Expected;
use crate::lock::{Place, ReadGuard, TreeLock, WriteGuard};
use crate::root::TreeRoot;
use crate::tree::Tree;

/// A tree that many threads read and change at once. Every function takes and releases the locks that
/// it needs; none is held between calls.
pub struct LiveTree {
    pub(super) shared: Arc<Shared>,
    id: u64,
    root: TreeLock<TreeRoot>,
    last_snapshot: AtomicU64,
    /// Blocks that it has more than when that was last asked for.
    growth: AtomicI64,
    pub(super) fingers: Fingers,
}

impl LiveTree {
    pub(super) fn new(shared: Arc<Shared>, root: TreeRoot, last_snapshot: u64) -> Self {
        let last_snapshot = AtomicU64::new(last_snapshot);
        let fingers = Fingers::default();
        let (id, root, growth) = (root.tree, TreeLock::new(root), AtomicI64::new(0));
        Self { shared, id, root, last_snapshot, growth, fingers }
    }

    /// The tree's id, which is the owner of its new blocks.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where the tree begins now.
    pub fn root(&self) -> TreeRoot {
        *self.read_root()
    }

    /// The generation of the last snapshot: blocks up to it may be shared with other trees.
    pub fn last_snapshot(&self) -> u64 {
        self.last_snapshot.load(Ordering::Acquire)
    }

    /// The tree as it is now, for readers without locks. Only of use once everything is written: it
    /// finds no block that is only in memory.
    pub fn committed(&self) -> Tree {
        Tree::new(self.shared.cache.clone(), self.root())
    }

    /// Forgets a block of the running transaction, of this or any tree, that nothing refers to any
    /// more, so that it will not be written. Trees see to that themselves for blocks that they report
    /// as freed; this is for blocks whose last reference goes in another way, when a tree is deleted or
    /// when all that shared a block have copied it. Call it before the address may be used again.
    pub fn forget_block(&self, logical: Logical) {
        self.shared.live.remove(logical, self.shared.running());
    }

    /// Whether a block of this generation is this tree's own and of the running transaction.
    pub(super) fn is_own(&self, generation: u64) -> bool {
        generation == self.shared.running() && generation > self.last_snapshot()
    }

    /// Whether a block may be changed in place by the holder of its write lock.
    pub(super) fn may_change(&self, block: &Block) -> bool {
        self.is_own(block.generation()) && !is_written(block)
    }

    fn root_place(&self) -> Place {
        Place { tree: self.id, level: ROOT_POINTER_LEVEL, key: Key::MIN }
    }

    pub(super) fn read_root(&self) -> ReadGuard<'_, TreeRoot> {
        self.root.read(self.root_place(), &self.shared.locks)
    }

    pub(super) fn write_root(&self) -> WriteGuard<'_, TreeRoot> {
        self.root.write(self.root_place(), &self.shared.locks)
    }

    /// Makes another block the root.
    pub(super) fn set_root(&self, guard: &mut WriteGuard<'_, TreeRoot>, root: TreeRoot) {
        **guard = root;
        self.shared.space.root_changed(root);
    }

    /// A new and empty block of this tree.
    pub(super) fn new_block(
        &self,
        level: u8,
        first_key: Key,
        near: Logical,
    ) -> Result<WriteGuard<'_, Block>, ChangeError> {
        let request = BlockRequest { tree: self.id, level, first_key, near: Some(near) };
        let block = self.shared.new_block(&request)?;
        self.growth.fetch_add(1, Ordering::Relaxed);
        Ok(self.hold_new(&block.live, block.first_key))
    }

    /// Gives up a block that was born in the running generation and that nothing in this tree refers to any
    /// more.
    pub(super) fn free(&self, block: &Block) {
        self.growth.fetch_sub(1, Ordering::Relaxed);
        self.shared.free(self.id, block);
    }

    /// How many blocks the tree has more, or less, than when this was last called. Blocks that it shares
    /// with others count, copies do not.
    pub fn take_growth(&self) -> i64 {
        self.growth.swap(0, Ordering::Relaxed)
    }

    /// Locks a block that no pointer leads to.
    pub(super) fn hold_new(&self, live: &LiveBlock, key: Key) -> WriteGuard<'_, Block> {
        live.try_write(self.id, key, &self.shared.locks).expect("nobody else can reach a new block")
    }

    /// A copy of `old` in the running generation. The caller makes a pointer lead to it.
    ///
    /// The cache forgets a leaf that is replaced. Snapshots may have it still, but hardly anybody looks at both; and
    /// the copy takes its memory over, if nobody else has it in hands.
    pub(super) fn copy(&self, old: Block) -> Result<WriteGuard<'_, Block>, ChangeError> {
        let first_key = old.node().first_key().unwrap_or(Key::MIN);
        if old.level() == 0 {
            self.shared.cache.forget(&old);
        }
        let new = self.copy_for(self.id, old, true)?;
        self.shared.counters.copies.add(1);
        Ok(self.hold_new(&new, first_key))
    }

    fn copy_for(
        &self,
        tree: u64,
        mut block: Block,
        old_is_replaced: bool,
    ) -> Result<LiveBlock, ChangeError> {
        let first_key = block.node().first_key().unwrap_or(Key::MIN);
        let near = Some(block.logical());
        let request = BlockRequest { tree, level: block.level(), first_key, near };
        let logical = self.shared.allocate(&request)?;
        let old = *block.header();
        let (header, _) = Header::mut_from_prefix(block.bytes_mut()).expect("a block has a header");
        header.bytenr = logical.0.into();
        header.flags = (BACKREF_REV_MIXED << BACKREF_REV_SHIFT).into();
        header.generation = self.shared.running().into();
        header.owner = tree.into();
        let old_may_be_shared = !old_is_replaced || old.generation.get() <= self.last_snapshot();
        let copied = Copied { tree, old: &old, new: &block, old_may_be_shared, old_is_replaced };
        if let Err(error) = self.shared.space.copied(&copied) {
            self.shared.space.freed(tree, &block);
            return Err(ChangeError::Space { tree, error });
        }
        Ok(self.shared.enter(&request, block).live)
    }

    /// A tree `id` whose root block is a copy of this one's.
    pub(super) fn snapshot(&self, id: u64) -> Result<LiveTree, ChangeError> {
        let root = self.read_root();
        let expected = Expected::from(*root);
        let old = match self.shared.in_memory(&expected) {
            Some(InMemory::Live(live)) => live.read(self.id, Key::MIN, &self.shared.locks).clone(),
            Some(InMemory::Clean(block)) => block,
            None => {
                // No lock is held while the root block is read; then it is looked for again.
                drop(root);
                self.shared.cache.read(&expected)?;
                return self.snapshot(id);
            }
        };
        // Both trees share what the old root block refers to from now on: nothing of this
        // generation may be changed in place any more.
        let generation = self.shared.running();
        let new = self.copy_for(id, old, false)?;
        self.last_snapshot.store(generation, Ordering::Release);
        let tree = TreeRoot { tree: id, logical: new.logical, level: new.level, generation };
        Ok(LiveTree::new(self.shared.clone(), tree, generation))
    }
}

impl fmt::Debug for LiveTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTree")
            .field("id", &self.id)
            .field("last_snapshot", &self.last_snapshot())
            .finish_non_exhaustive()
    }
}
