//! Commit: from the running state to a durable one.
//!
//! # Invariants
//! - The superblock is written after everything that it leads to is durable. Nothing that the superblock before
//!   it leads to is overwritten until the new one is durable.
//! - Commits follow one another. Threads join between them, and while a commit writes its blocks.
//! - After an error the last durable state is on the devices, and the file system is read-only.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_btree::{TreeRoot, WriteSet};
use larder_format::item::Timespec;
use larder_format::objectid::{CHUNK_TREE, EXTENT_TREE, ROOT_TREE};
use larder_format::{ItemType, Key, Logical, Superblock};

use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::hook::TransactionHook;
use super::roots::Roots;
use super::superblock::Committed;
use super::{Exclusive, TransactionManager};
use crate::chunk::system_chunk_array;
use crate::clock::now;
use crate::error::{Error, Result};
use crate::space::Pinned;
use crate::tree_items::TreeItems;

/// Blocks that follow one another are written together, up to this many bytes.
const WRITE_BYTES: usize = 1 << 20;
/// After as many rounds of bookkeeping something is wrong.
const MOST_ROUNDS: usize = 1000;

/// A state that no longer changes, before it is durable.
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
        let _unwinding = AbortOnUnwind(&self.abort);
        self.check_alive()?;
        let hooks = self.hooks.read().clone();
        hooks.iter().try_for_each(|hook| hook.before_commit(self))?;
        self.commit_with(&hooks).inspect_err(|error| self.abort(error.clone()))
    }

    fn commit_with(&self, hooks: &[Arc<dyn TransactionHook>]) -> Result<u64> {
        // Most references are run while others go on.
        self.run_references_in_passing()?;
        let exclusive = self.quiesce_for_commit();
        // A thread that had joined may have failed in the middle of a change.
        self.check_alive()?;
        hooks.iter().try_for_each(|hook| hook.in_commit(&exclusive))?;
        // Now, so that what others note from here on makes another commit due.
        self.timer().clear_work();
        let frozen = self.freeze(&exclusive)?;
        exclusive.forget_joins();
        if hooks.iter().any(|hook| hook.has_more()) {
            self.note_work();
        }
        drop(exclusive);
        let Some(frozen) = frozen else { return Ok(self.durable_generation()) };
        let generation = frozen.superblock.generation.get();
        self.write_out(frozen)?;
        self.durable.note_commit();
        tracing::debug!("generation {generation} is committed");
        for hook in hooks {
            hook.committed(generation);
        }
        Ok(generation)
    }

    fn run_references_in_passing(&self) -> Result<()> {
        let mut left = self.tree_space.refs.len();
        while left > 0 {
            let handle = self.join()?;
            let done = self.bookkeeping.run_references(BATCH.min(left), self.generation())?;
            drop(handle);
            if done == 0 {
                break;
            }
            left -= done;
        }
        Ok(())
    }

    /// Ends the running generation. `None` if nothing has changed in it.
    fn freeze(&self, exclusive: &Exclusive<'_>) -> Result<Option<Frozen>> {
        exclusive.give_up_logs()?;
        let is_changed = self.tree_space.is_changed.swap(false, Relaxed)
            || self.roots.lock().is_dirty()
            || self.superblock.take_dirty()
            || self.device_stats.is_dirty();
        if !is_changed {
            return Ok(None);
        }
        let generation = self.generation();
        self.renew_root_tree(generation)?;
        self.write_quotas(generation)?;
        self.device_stats.write()?;
        self.bookkeeping.remove_empty_groups()?;
        self.write_until_stable()?;
        let superblock = self.next_superblock(generation)?;
        self.tree_space.forget_dissolved();
        self.space().forget_new_groups();
        let pinned = self.space().take_pinned();
        let blocks = self.forest.freeze();
        self.tree_space.is_changed.store(false, Relaxed);
        self.timer().clear_new_blocks();
        Ok(Some(Frozen { superblock, blocks, pinned }))
    }

    /// Copies the root of the root tree, which has the superblock's generation even if nothing but the
    /// superblock changes.
    fn renew_root_tree(&self, generation: u64) -> Result<()> {
        if self.trees.root.root().generation < generation {
            let always_there = Key::new(EXTENT_TREE, ItemType::ROOT_ITEM, 0);
            self.trees.root.modify(always_there, |_| ())?;
        }
        Ok(())
    }

    /// Runs references and writes groups and roots until none of it causes more.
    fn write_until_stable(&self) -> Result<()> {
        let now = now();
        for _ in 0..MOST_ROUNDS {
            while self.bookkeeping.run_references(BATCH, self.generation())? > 0 {}
            let wrote_groups = self.bookkeeping.write_groups()?;
            let wrote_roots = self.write_roots(now)?;
            if !wrote_groups && !wrote_roots && self.tree_space.refs.is_empty() {
                return Ok(());
            }
        }
        Err(Error::extent(Logical(0), "writing the extent tree changes it without end"))
    }

    /// Brings root items up to date. Returns whether any had changed.
    fn write_roots(&self, now: Timespec) -> Result<bool> {
        let moved = std::mem::take(&mut *self.tree_space.moved_roots.lock());
        let mut roots = self.roots.lock();
        let has_item = |root: &&TreeRoot| {
            // The superblock leads to these two. A tree that was dropped has no item.
            !matches!(root.tree, ROOT_TREE | CHUNK_TREE) && roots.get(root.tree).is_some()
        };
        let moved: Vec<TreeRoot> = moved.values().filter(has_item).copied().collect();
        moved.into_iter().try_for_each(|root| roots.moved(root, now))?;
        self.note_growth(&mut roots);
        if !roots.is_dirty() {
            return Ok(false);
        }
        roots.write(&mut TreeItems::new(self.trees.root.clone()))?;
        Ok(true)
    }

    /// Updates the sizes of trees in their root items. The caller has an [`Exclusive`].
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
        for (devid, bytes_used) in self.space().device_bytes_used() {
            if let Some(device) = self.volume.device(devid) {
                device.set_bytes_used(bytes_used);
            }
        }
        let committed = Committed {
            generation,
            root_tree: self.trees.root.root(),
            chunk_tree: self.trees.chunk.root(),
            bytes_used: self.space().bytes_used(),
            system_chunks: &system_chunks,
            roots: &self.roots.lock(),
        };
        Ok(self.superblock.complete(&committed))
    }

    fn write_out(&self, frozen: Frozen) -> Result<()> {
        let Frozen { superblock, blocks, pinned } = frozen;
        let _writing = self.timer().writing();
        self.write_blocks(&blocks)?;
        self.volume.write_superblocks(&superblock)?;
        blocks.finish();
        self.durable.advance(&superblock);
        // Before the space can be allocated again.
        if self.discards.load(Relaxed) {
            self.space().discard(&pinned);
        }
        self.space().unpin(pinned)
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
        let Some((quotas, tree)) = self.quotas().zip(self.trees.quota.clone()) else {
            return Ok(());
        };
        quotas.write(&mut TreeItems::new(tree), generation)
    }
}
