//! Commit: from the running state to a durable one.
//!
//! # Invariants
//! - The superblock is written after everything that it leads to is durable, and nothing that the
//!   superblock before it leads to is written over until the new one is durable.
//! - Commits follow one another; between them the door is open, also while blocks are being written.
//! - After any error the last durable state is what is on the devices, and the file system is
//!   read-only.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::SystemTime;

use larder_btree::{TreeRoot, WriteSet};
use larder_format::item::Timespec;
use larder_format::objectid::{CHUNK_TREE, EXTENT_TREE, ROOT_TREE};
use larder_format::{ItemType, Key, Logical, Superblock};

use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::roots::Roots;
use super::superblock::Committed;
use super::{CommitHook, Exclusive, TransactionManager};
use crate::chunk::system_chunk_array;
use crate::clock::now;
use crate::error::{Error, Result};
use crate::space::Pinned;
use crate::tree_items::TreeItems;

/// Blocks that follow one another are written together, up to this many bytes.
const WRITE_BYTES: usize = 1 << 20;
/// Rounds after which bookkeeping should have come to rest long ago.
const MOST_ROUNDS: usize = 1000;

/// A state that does not change any more and is to become durable.
struct Frozen {
    superblock: Box<Superblock>,
    blocks: WriteSet,
    pinned: Pinned,
}

impl TransactionManager {
    /// Makes everything that was done before this call durable, unless it is already. Returns the
    /// generation of the last durable state.
    ///
    /// # Panics
    /// When this thread has a [`Handle`](super::Handle).
    pub fn commit(&self) -> Result<u64> {
        let _committing = self.committing.lock();
        let _unwinding = AbortOnUnwind(self);
        self.check_alive()?;
        let hooks = self.hooks.read().clone();
        hooks.iter().try_for_each(|hook| hook.before_commit(self))?;
        self.commit_with(&hooks).inspect_err(|error| self.abort(error.clone()))
    }

    fn commit_with(&self, hooks: &[Arc<dyn CommitHook>]) -> Result<u64> {
        // Most references are run while others go on.
        self.run_references_in_passing()?;
        let exclusive = self.exclusive();
        // An error among those who were inside may have left things half done.
        self.check_alive()?;
        hooks.iter().try_for_each(|hook| hook.in_commit(&exclusive))?;
        let alarm = &self.accounting.alarm;
        // First: what others note from here on, with the door closed, is to be found.
        alarm.rest();
        let frozen = self.freeze()?;
        exclusive.closed.forget_entries();
        if hooks.iter().any(|hook| hook.has_more()) {
            alarm.note_work();
        }
        drop(exclusive);
        let Some(frozen) = frozen else { return Ok(self.durable_generation()) };
        let generation = frozen.superblock.generation.get();
        self.write_out(frozen)?;
        *self.committed_at.lock() = Some(SystemTime::now());
        tracing::debug!("generation {generation} is committed");
        for hook in hooks {
            hook.committed(generation);
        }
        Ok(generation)
    }

    fn run_references_in_passing(&self) -> Result<()> {
        let mut left = self.accounting.refs.len();
        while left > 0 {
            let handle = self.attach()?;
            let done = self.run_some_references(BATCH.min(left))?;
            drop(handle);
            if done == 0 {
                break;
            }
            left -= done;
        }
        Ok(())
    }

    /// Ends the running generation. `None` if nothing has changed in it. The door is closed.
    fn freeze(&self) -> Result<Option<Frozen>> {
        self.give_up_logs()?;
        let is_changed = self.accounting.is_changed.swap(false, Relaxed)
            || self.roots.lock().is_dirty()
            || self.superblock_is_dirty.swap(false, Relaxed)
            || self.has_new_device_errors();
        if !is_changed {
            return Ok(None);
        }
        let generation = self.generation();
        self.renew_root_tree(generation)?;
        self.write_quotas(generation)?;
        self.write_device_errors()?;
        self.remove_empty_groups()?;
        self.settle()?;
        let superblock = self.next_superblock(generation)?;
        self.accounting.forget_dissolved();
        self.accounting.space.forget_new_groups();
        let pinned = self.accounting.space.take_pinned();
        let blocks = self.forest.freeze();
        self.accounting.is_changed.store(false, Relaxed);
        self.accounting.alarm.blocks_taken();
        Ok(Some(Frozen { superblock, blocks, pinned }))
    }

    /// Copies the root of the root tree, which has the superblock's generation even if nothing but the
    /// superblock changes.
    fn renew_root_tree(&self, generation: u64) -> Result<()> {
        if self.root_tree.root().generation < generation {
            let always_there = Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0);
            self.root_tree.modify(always_there, |_| ())?;
        }
        Ok(())
    }

    /// Runs references and writes groups and roots until none of it causes more.
    fn settle(&self) -> Result<()> {
        let now = now();
        for _ in 0..MOST_ROUNDS {
            while self.run_some_references(BATCH)? > 0 {}
            let wrote_groups = self.write_groups()?;
            let wrote_roots = self.write_roots(now)?;
            if !wrote_groups && !wrote_roots && self.accounting.refs.is_empty() {
                return Ok(());
            }
        }
        Err(Error::extent(Logical(0), "the extent tree does not come to rest"))
    }

    /// Brings root items up to date. Returns whether any had changed.
    fn write_roots(&self, now: Timespec) -> Result<bool> {
        let moved = std::mem::take(&mut *self.accounting.moved_roots.lock());
        let mut roots = self.roots.lock();
        let has_item = |root: &&TreeRoot| {
            // The superblock leads to these two, and a tree that was dropped has no item any more.
            !matches!(root.tree, ROOT_TREE | CHUNK_TREE) && roots.get(root.tree).is_some()
        };
        let moved: Vec<TreeRoot> = moved.values().filter(has_item).copied().collect();
        moved.into_iter().try_for_each(|root| roots.moved(root, now))?;
        self.note_growth(&mut roots);
        if !roots.is_dirty() {
            return Ok(false);
        }
        roots.write(&mut TreeItems::new(self.root_tree.clone()))?;
        Ok(true)
    }

    /// Has root items say how large their trees are now. The door is closed.
    pub(super) fn note_growth(&self, roots: &mut Roots) {
        let nodesize = i64::from(self.volume.nodesize());
        for tree in self.forest.trees() {
            match tree.take_growth() {
                0 => {}
                blocks => roots.grown(tree.id(), blocks * nodesize),
            }
        }
    }

    fn next_superblock(&self, generation: u64) -> Result<Box<Superblock>> {
        let full = || Error::extent(Logical(0), "the system chunks do not fit the superblock");
        let chunks = self.volume.chunks();
        let system_chunks =
            system_chunk_array(&chunks, self.volume.sectorsize()).ok_or_else(full)?;
        for (devid, bytes_used) in self.accounting.space.device_bytes_used() {
            if let Some(device) = self.volume.device(devid) {
                device.set_bytes_used(bytes_used);
            }
        }
        let mut superblock = self.superblock.lock();
        let committed = Committed {
            generation,
            root_tree: self.root_tree.root(),
            chunk_tree: self.chunk_tree.root(),
            bytes_used: self.accounting.space.bytes_used(),
            system_chunks: &system_chunks,
            roots: &self.roots.lock(),
        };
        committed.write_to(&mut superblock);
        Ok(superblock.clone())
    }

    fn write_out(&self, frozen: Frozen) -> Result<()> {
        let Frozen { superblock, blocks, pinned } = frozen;
        let _writing = self.accounting.alarm.writing();
        self.write_blocks(&blocks)?;
        self.volume.write_superblocks(&superblock)?;
        blocks.finish();
        self.durable_superblock.lock().clone_from(&superblock);
        *self.durable_root.write() = TreeRoot::of_root_tree(&superblock);
        self.durable_generation.store(superblock.generation.get(), Release);
        // Before anybody is given the space again.
        if self.discards.load(Relaxed) {
            self.accounting.space.discard(&pinned);
        }
        self.accounting.space.unpin(pinned)
    }

    pub(crate) fn write_blocks(&self, blocks: &WriteSet) -> Result<()> {
        let checksum = self.volume.checksum_type();
        let mut run: Vec<u8> = Vec::new();
        let mut start = Logical(0);
        for (index, logical) in blocks.addresses().enumerate() {
            let continues = logical.0 == start.0 + run.len() as u64 && run.len() < WRITE_BYTES;
            if !continues {
                self.write_run(start, &run)?;
                run.clear();
                start = logical;
            }
            run.extend_from_slice(blocks.seal(index, checksum)?.bytes());
        }
        self.write_run(start, &run)
    }

    fn write_run(&self, start: Logical, run: &[u8]) -> Result<()> {
        if run.is_empty() { Ok(()) } else { Ok(self.volume.write(start, run)?) }
    }

    /// Brings the quota tree up to date, where quotas are on.
    fn write_quotas(&self, generation: u64) -> Result<()> {
        let Some((quotas, tree)) = self.accounting.quotas().zip(self.quota_tree.clone()) else {
            return Ok(());
        };
        quotas.write(&mut TreeItems::new(tree), generation)
    }

    /// The generation of the last durable state.
    pub fn durable_generation(&self) -> u64 {
        self.durable_generation.load(Acquire)
    }

    /// When the last durable state became so, if that was since the file system was opened.
    pub fn committed_at(&self) -> Option<SystemTime> {
        *self.committed_at.lock()
    }

    /// Closes the door, for what nobody else may be inside for.
    pub fn close(&self) -> Exclusive<'_> {
        self.note_work();
        self.exclusive()
    }

    fn exclusive(&self) -> Exclusive<'_> {
        let closed = self.door.close();
        Exclusive { manager: self, _unwinding: AbortOnUnwind(self), closed }
    }
}
