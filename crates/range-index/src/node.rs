//! A node: a tower of forward links, a back link, and an atomic pointer to the node's block.
//!
//! Invariants
//! - The block pointer carries two tags. `LOCKED`: one writer is changing which tile the node has;
//!   other writers wait, readers go on reading the block. `DEAD`: the node has no tile any more,
//!   its left neighbour has taken it over; it never comes back to life.
//! - `links[0]` and the `prev` of the node it leads to are written only by the holder of this
//!   node's block lock. Links above level 0 are written only by the holder of this node's tower
//!   lock. A tower lock is closed for good before its node is unlinked.
//! - Threads take locks in this order: blocks before towers, blocks from left to right, towers
//!   from right to left. No thread that holds a tower lock waits for a block lock.
//! - A link's `key` is where the tile of `next` begins, `NO_KEY` where there is no next. It is what
//!   a search compares, so that a node that is not entered is not touched. Between two stores it
//!   may disagree with `next`; the block that a search ends in says which tile it really has.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crossbeam_epoch::Guard;

use crate::block::{self, BlockRef, Header, OwnedBlock};
use crate::bound::Bound;
use crate::slabs::{MAX_HEIGHT, Slabs};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Wait};

/// The key of a link that leads nowhere: no tile begins here.
pub(crate) const NO_KEY: u64 = u64::MAX;

const LOCKED: usize = 1;
const DEAD: usize = 2;

const TOWER_OPEN: u32 = 0;
const TOWER_LOCKED: u32 = 1;
const TOWER_CLOSED: u32 = 2;

/// One forward link.
pub(crate) struct Link<V> {
    next: AtomicPtr<Node<V>>,
    key: AtomicU64,
    /// No hole from this node up to `next` is larger.
    pub(crate) bound: Bound,
}

impl<V> Link<V> {
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::SeqCst)
    }

    pub(crate) fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::SeqCst);
    }

    pub(crate) fn next<'g>(&self, _: &'g Guard) -> Option<NodeRef<'g, V>> {
        // SAFETY: a link holds null or a node that is not freed before this guard is dropped: a
        // node is retired only after the last link to it is gone.
        unsafe { NodeRef::from_raw(self.next.load(Ordering::SeqCst)) }
    }

    /// The key and the node that it belongs to, or one that begins earlier.
    pub(crate) fn target<'g>(&self, guard: &'g Guard) -> (u64, Option<NodeRef<'g, V>>) {
        let mut key = self.key();
        loop {
            let next = self.next(guard);
            let now = self.key();
            if now == key {
                return (key, next);
            }
            key = now;
        }
    }

    /// Puts a new node after this link. The thread stores the node before the key, so that a
    /// search that meets the change halfway falls short of its target and never overshoots it.
    pub(crate) fn insert(&self, node: NodeRef<'_, V>, key: u64) {
        self.next.store(node.as_ptr(), Ordering::SeqCst);
        self.key.store(key, Ordering::SeqCst);
    }

    /// Makes this link lead where `from` leads: for a new node, and past a dead one. The key comes
    /// first, so that a search that sees the new node can see that the key is another one.
    pub(crate) fn copy_from(&self, from: &Link<V>) {
        self.key.store(from.key.load(Ordering::SeqCst), Ordering::SeqCst);
        self.next.store(from.next.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// The fixed part of a node; `height` links follow it in the same allocation.
#[repr(C)]
pub(crate) struct Node<V> {
    block: AtomicPtr<Header<V>>,
    prev: AtomicPtr<Node<V>>,
    tower: AtomicU32,
    height: u32,
}

/// A node's block pointer at one moment.
pub(crate) struct Word<V>(*mut Header<V>);

impl<V> Clone for Word<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Word<V> {}

impl<V> PartialEq for Word<V> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<V> Word<V> {
    fn open(block: OwnedBlock<V>) -> Self {
        Word(block.into_raw())
    }

    fn with(self, tag: usize) -> Self {
        Word(self.0.map_addr(|address| address | tag))
    }

    pub(crate) fn is_locked(self) -> bool {
        self.0.addr() & LOCKED != 0
    }

    /// Asks at once for the cache lines with the header, the keys and the first half of the
    /// entries or more, in a block of usual size; a binary search would wait for one after
    /// another, and then for the entry.
    pub(crate) fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in 0..14 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch accesses nothing and may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.0.cast::<i8>().wrapping_add(line * 64)) };
        }
    }

    fn untagged(self) -> *mut Header<V> {
        self.0.map_addr(|address| address & !(LOCKED | DEAD))
    }

    /// The block, or none when the node is dead.
    pub(crate) fn block(self, _: &Guard) -> Option<BlockRef<'_, V>> {
        if self.0.addr() & DEAD != 0 {
            return None;
        }
        let header = NonNull::new(self.untagged())?;
        // SAFETY: the word was loaded under this guard, and a block is retired only after it was
        // replaced.
        Some(unsafe { BlockRef::new(header) })
    }
}

/// Whether a tower's links can still change.
pub(crate) enum Tower {
    Open,
    Locked,
    Closed,
}

/// A node that may be read for as long as `'g`.
pub(crate) struct NodeRef<'g, V> {
    node: NonNull<Node<V>>,
    lifetime: PhantomData<&'g V>,
}

impl<V> Clone for NodeRef<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for NodeRef<'_, V> {}

impl<V> PartialEq for NodeRef<'_, V> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

fn layout_of<V>(height: usize) -> (Layout, usize) {
    let links = Layout::array::<Link<V>>(height).expect("a tower fits in memory");
    let (layout, offset) = Layout::new::<Node<V>>().extend(links).expect("a node's layout");
    (layout.pad_to_align(), offset)
}

/// Allocates a node of exactly `height` links, which lead nowhere and promise nothing about holes.
pub(crate) fn allocate<V>(slabs: &Slabs, height: usize, block: OwnedBlock<V>) -> *mut Node<V> {
    assert!((1..=MAX_HEIGHT).contains(&height), "a tower has between 1 and {MAX_HEIGHT} links");
    let (layout, links_offset) = layout_of::<V>(height);
    let node = slabs.allocate(height, layout).cast::<Node<V>>().as_ptr();
    // SAFETY: freshly allocated with room for the header and `height` links.
    unsafe {
        node.write(Node {
            block: AtomicPtr::new(Word::open(block).0),
            prev: AtomicPtr::new(ptr::null_mut()),
            tower: AtomicU32::new(TOWER_OPEN),
            height: height as u32,
        });
        let links = node.byte_add(links_offset).cast::<Link<V>>();
        for level in 0..height {
            links.add(level).write(Link {
                next: AtomicPtr::new(ptr::null_mut()),
                key: AtomicU64::new(NO_KEY),
                bound: Bound::unknown(),
            });
        }
    }
    node
}

/// Frees a node and the block it still has.
///
/// # Safety
/// `node` came from [`allocate`] with the same slabs, is freed once, and no thread can reach it
/// any more.
pub(crate) unsafe fn free<V>(slabs: &Slabs, node: *mut Node<V>) {
    // SAFETY: the caller's promise. A dead node's block has been retired on its own.
    unsafe {
        let word = Word((*node).block.load(Ordering::Relaxed));
        if word.0.addr() & DEAD == 0 {
            let block = word.untagged();
            block::free(block, BlockRef::new(NonNull::new_unchecked(block)).len());
        }
        let height = (*node).height as usize;
        let (layout, links_offset) = layout_of::<V>(height);
        let links = node.byte_add(links_offset).cast::<Link<V>>();
        ptr::slice_from_raw_parts_mut(links, height).drop_in_place();
        node.drop_in_place();
        slabs.free(NonNull::new_unchecked(node).cast(), height, layout);
    }
}

impl<'g, V> NodeRef<'g, V> {
    /// # Safety
    /// `node` is null or came from [`allocate`], and is not freed during `'g`.
    pub(crate) unsafe fn from_raw(node: *mut Node<V>) -> Option<Self> {
        NonNull::new(node).map(|node| NodeRef { node, lifetime: PhantomData })
    }

    pub(crate) fn as_ptr(self) -> *mut Node<V> {
        self.node.as_ptr()
    }

    fn header(self) -> &'g Node<V> {
        // SAFETY: the node is alive during 'g; only its atomics change.
        unsafe { self.node.as_ref() }
    }

    pub(crate) fn height(self) -> usize {
        self.header().height as usize
    }

    /// The link at `level`.
    pub(crate) fn link(self, level: usize) -> &'g Link<V> {
        assert!(level < self.height(), "a node has no link above its tower");
        // SAFETY: just checked.
        unsafe { self.link_unchecked(level) }
    }

    /// # Safety
    /// `level` is below the node's height. That holds at any node to which a link of that level
    /// leads.
    pub(crate) unsafe fn link_unchecked(self, level: usize) -> &'g Link<V> {
        const { assert!(size_of::<Node<V>>().is_multiple_of(align_of::<Link<V>>())) };
        // SAFETY: `height` links follow the header, in the allocation the pointer has provenance
        // over.
        unsafe { &*self.node.as_ptr().byte_add(size_of::<Node<V>>()).cast::<Link<V>>().add(level) }
    }

    pub(crate) fn prev(self, _: &'g Guard) -> Option<NodeRef<'g, V>> {
        // SAFETY: the left neighbour that this names is retired only after this name is replaced,
        // or, when this node is dead, after this node itself was retired.
        unsafe { NodeRef::from_raw(self.header().prev.load(Ordering::SeqCst)) }
    }

    pub(crate) fn set_prev(self, prev: NodeRef<'_, V>) {
        self.header().prev.store(prev.as_ptr(), Ordering::SeqCst);
    }

    pub(crate) fn word(self) -> Word<V> {
        Word(self.header().block.load(Ordering::SeqCst))
    }

    /// The block, or none when the node is dead.
    pub(crate) fn block(self, guard: &'g Guard) -> Option<BlockRef<'g, V>> {
        self.word().block(guard)
    }

    fn exchange(self, old: Word<V>, new: Word<V>) -> bool {
        let block = &self.header().block;
        block.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Replaces the unlocked block `old`; false when another writer was first.
    pub(crate) fn try_publish(self, old: Word<V>, new: OwnedBlock<V>) -> bool {
        debug_assert!(!old.is_locked(), "only the owner of the lock replaces a locked block");
        let done = self.exchange(old, Word(new.as_ref().as_ptr()));
        if done {
            let _ = new.into_raw();
        }
        done
    }

    /// [`NodeRef::try_publish`] that takes the block lock in the same step.
    pub(crate) fn try_publish_and_lock(
        self,
        old: Word<V>,
        new: OwnedBlock<V>,
    ) -> Option<BlockLock<'g, V>> {
        debug_assert!(!old.is_locked(), "only the owner of the lock replaces a locked block");
        let done = self.exchange(old, Word(new.as_ref().as_ptr()).with(LOCKED));
        done.then(|| {
            let _ = new.into_raw();
            BlockLock(self)
        })
    }

    /// Takes the block lock if the block is still `old`.
    pub(crate) fn try_lock(self, old: Word<V>) -> Option<BlockLock<'g, V>> {
        (!old.is_locked() && self.exchange(old, old.with(LOCKED))).then(|| BlockLock(self))
    }

    pub(crate) fn tower(self) -> Tower {
        match self.header().tower.load(Ordering::SeqCst) {
            TOWER_OPEN => Tower::Open,
            TOWER_LOCKED => Tower::Locked,
            _ => Tower::Closed,
        }
    }

    /// Takes the tower lock if it is free.
    pub(crate) fn try_lock_tower(self) -> bool {
        let tower = &self.header().tower;
        let locked =
            tower.compare_exchange(TOWER_OPEN, TOWER_LOCKED, Ordering::SeqCst, Ordering::SeqCst);
        locked.is_ok()
    }

    /// Takes the tower lock; false when the tower is closed. `waited` is called once if it is not
    /// free.
    pub(crate) fn lock_tower(self, mut waited: impl FnMut()) -> bool {
        let mut wait = Wait::new();
        while !self.try_lock_tower() {
            if matches!(self.tower(), Tower::Closed) {
                return false;
            }
            if wait.is_fresh() {
                waited();
            }
            wait.pause();
        }
        true
    }

    /// A thread that reads that the tower is locked waits, so it does no harm if it sees this late.
    pub(crate) fn unlock_tower(self) {
        self.header().tower.store(TOWER_OPEN, Ordering::Release);
    }

    /// Closes a tower whose lock the caller holds.
    pub(crate) fn close_tower(self) {
        self.header().tower.store(TOWER_CLOSED, Ordering::SeqCst);
    }
}

/// The block lock of a node. Dropping it leaves the block as it is, also when a value's `clone`
/// panics.
pub(crate) struct BlockLock<'g, V>(NodeRef<'g, V>);

impl<'g, V> BlockLock<'g, V> {
    pub(crate) fn node(&self) -> NodeRef<'g, V> {
        self.0
    }

    pub(crate) fn block(&self, guard: &'g Guard) -> BlockRef<'g, V> {
        self.0.block(guard).expect("a locked node is alive")
    }

    /// Replaces the block and keeps the lock.
    pub(crate) fn publish(&self, new: OwnedBlock<V>) {
        self.0.header().block.store(Word::open(new).with(LOCKED).0, Ordering::SeqCst);
    }

    /// Replaces the block and drops the lock.
    pub(crate) fn publish_and_unlock(self, new: OwnedBlock<V>) {
        self.0.header().block.store(Word::open(new).0, Ordering::SeqCst);
        std::mem::forget(self);
    }

    /// Takes the node's tile away for good.
    pub(crate) fn die(self) {
        self.0.header().block.store(Word(ptr::null_mut()).with(DEAD).0, Ordering::SeqCst);
        std::mem::forget(self);
    }
}

impl<V> Drop for BlockLock<'_, V> {
    fn drop(&mut self) {
        let word = self.0.word();
        debug_assert!(word.is_locked(), "locks are dropped once");
        self.0.header().block.store(word.untagged(), Ordering::SeqCst);
    }
}
