//! A file system of one forest in memory: blocks come from a counter, commits go to a memory store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_btree::{
    BlockCache, BlockIdentity, BlockRequest, BlockSpace, BlockStore, Copied, Forest, LiveTree,
    LockPolicy, MemoryStore, SpaceError, TreeRoot,
};
use larder_format::{ChecksumType, Logical, Uuid};
use parking_lot::Mutex;

/// Allocates addresses, and knows which blocks each live tree may have.
pub(crate) struct TestSpace {
    nodesize: u64,
    next: AtomicU64,
    pub(crate) in_use: Mutex<BTreeSet<Logical>>,
    free: Mutex<Vec<Logical>>,
    /// Blocks of earlier generations that were replaced by copies.
    pub(crate) replaced: Mutex<BTreeSet<Logical>>,
    /// Whether replaced blocks stay in use, as another tree may have them.
    pub(crate) keeps_replaced: AtomicBool,
    /// Allocations left before they fail.
    pub(crate) allocations_left: AtomicU64,
}

impl TestSpace {
    fn new(nodesize: usize) -> Self {
        Self {
            nodesize: nodesize as u64,
            next: AtomicU64::new(1 << 20),
            in_use: Mutex::default(),
            free: Mutex::default(),
            replaced: Mutex::default(),
            keeps_replaced: AtomicBool::new(false),
            allocations_left: AtomicU64::new(u64::MAX),
        }
    }
}

impl TestSpace {
    /// Frees a block that no tree reported.
    pub(crate) fn recycle(&self, logical: Logical) {
        assert!(self.in_use.lock().remove(&logical), "{logical} was not in use");
        self.free.lock().push(logical);
    }
}

impl TestSpace {
    /// Frees addresses that no durable tree needs any more.
    pub(crate) fn unpin(&self, addresses: impl IntoIterator<Item = Logical>) {
        self.free.lock().extend(addresses);
    }
}

impl BlockSpace for TestSpace {
    fn allocate(&self, request: &BlockRequest) -> Result<Logical, SpaceError> {
        assert!(request.level < 8);
        let left = |left: u64| left.checked_sub(1);
        if self.allocations_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err() {
            return Err("no space left".into());
        }
        let recycled = self.free.lock().pop();
        let fresh = || Logical(self.next.fetch_add(self.nodesize, Ordering::SeqCst));
        let logical = recycled.unwrap_or_else(fresh);
        assert!(self.in_use.lock().insert(logical), "{logical} was allocated twice");
        Ok(logical)
    }

    fn copied(&self, copied: &Copied<'_>) -> Result<(), SpaceError> {
        assert_eq!(copied.old.level, copied.new.level());
        assert_ne!(copied.old.bytenr(), copied.new.logical());
        if copied.old_is_replaced && !self.keeps_replaced.load(Ordering::SeqCst) {
            let old = copied.old.bytenr();
            assert!(self.in_use.lock().remove(&old), "{old} was not in use");
            self.replaced.lock().insert(old);
        }
        Ok(())
    }

    fn freed(&self, _tree: u64, block: &larder_btree::Block) {
        let logical = block.logical();
        assert!(self.in_use.lock().remove(&logical), "{logical} was freed twice");
        // Born and freed in one transaction: the address may be used again at once.
        self.free.lock().push(logical);
    }
}

/// A forest whose trees are in `store`.
pub(crate) fn forest_over(
    store: Arc<dyn BlockStore>,
    generation: u64,
    cache_bytes: usize,
) -> Forest {
    let space = Arc::new(TestSpace::new(store.nodesize()));
    // This space does not count blocks that were in the store before.
    space.keeps_replaced.store(true, Ordering::SeqCst);
    space.next.store(1 << 40, Ordering::SeqCst);
    let cache = Arc::new(BlockCache::new(store, cache_bytes));
    let identity = BlockIdentity { fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil() };
    Forest::new(cache, space, identity, generation)
}

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) space: Arc<TestSpace>,
    pub(crate) forest: Forest,
}

impl World {
    pub(crate) fn new(nodesize: usize) -> Self {
        Self::with(nodesize, LockPolicy::default(), 1 << 26)
    }

    pub(crate) fn with(nodesize: usize, policy: LockPolicy, cache_bytes: usize) -> Self {
        Self::over(nodesize, policy, cache_bytes, |store| store)
    }

    /// A world that reads its blocks through the store that `wrap` returns.
    pub(crate) fn over(
        nodesize: usize,
        policy: LockPolicy,
        cache_bytes: usize,
        wrap: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn BlockStore>,
    ) -> Self {
        let store = Arc::new(MemoryStore::new(nodesize));
        let space = Arc::new(TestSpace::new(nodesize));
        let cache = Arc::new(BlockCache::new(wrap(store.clone()), cache_bytes));
        let identity = BlockIdentity { fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil() };
        let forest = Forest::with_policy(cache, space.clone(), identity, 10, policy);
        Self { store, space, forest }
    }

    pub(crate) fn tree(&self) -> Arc<LiveTree> {
        self.forest.create_tree(super::TREE).expect("space is there")
    }

    /// Ends the transaction and writes all of it.
    pub(crate) fn commit(&self) {
        let set = self.forest.freeze();
        let mut before = None;
        for (index, address) in set.addresses().enumerate() {
            assert!(before < Some(address), "blocks come in order of address");
            before = Some(address);
            let block = set.seal(index, ChecksumType::Crc32c).unwrap();
            let checksum = ChecksumType::Crc32c.compute_block(block.bytes());
            assert_eq!(checksum.as_bytes(), &block.bytes()[..4]);
            self.store.write(block.bytes());
        }
        set.finish();
        assert_eq!(self.forest.stats().dirty_blocks, 0);
        self.space.replaced.lock().clear();
    }

    /// Checks a tree's shape, and that exactly its blocks are in use.
    pub(crate) fn check_alone(&self, tree: &LiveTree) -> larder_btree::Shape {
        let shape = tree.shape().unwrap_or_else(|error| panic!("{error}"));
        let blocks: u64 = shape.blocks.iter().sum();
        assert_eq!(blocks, self.space.in_use.lock().len() as u64, "blocks leaked or lost");
        shape
    }

    pub(crate) fn committed(&self, root: TreeRoot) -> larder_btree::Tree {
        larder_btree::Tree::new(self.forest.cache().clone(), root)
    }
}
