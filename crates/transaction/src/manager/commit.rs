//! Commit: from the running state to a durable one.
//!
//! # Invariants
//! - The superblock is written after everything that it leads to is durable. Nothing that the
//!   superblock before it leads to is overwritten until the new one is durable.
//! - Commits follow one another. Threads join between them, and while a commit writes its blocks.
//! - After an error the last durable state is on the devices, and the file system is read-only.

use std::sync::atomic::Ordering::Relaxed;

use larder_btree::WriteSet;
use larder_format::Superblock;

use super::abort::AbortOnUnwind;
use super::bookkeeping::BATCH;
use super::hook::TransactionHook;
use super::superblock::Committed;
use super::write_blocks::write_blocks;
use super::{Exclusive, TransactionManager};
use crate::chunk::fitting_system_array;
use crate::error::{Error, Result};
use crate::log::Logs;
use crate::space::Pinned;
use crate::tree_items::TreeItems;

/// With more rounds of bookkeeping, something is wrong.
const MOST_ROUNDS: usize = 1000;

/// A state that no longer changes, before it is durable.
struct Frozen {
    superblock: Box<Superblock>,
    blocks: WriteSet,
    pinned: Pinned,
}

impl TransactionManager {
    /// Makes all earlier changes durable, unless they are already. Returns the generation of the
    /// last durable state.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](super::Handle).
    pub fn commit(&self) -> Result<u64> {
        self.commit_locked(&mut self.lock_committing())
    }

    /// The same, for a caller that keeps other commits from beginning.
    pub(super) fn commit_locked(&self, logs: &mut Logs) -> Result<u64> {
        self.commit_with(logs, |_| Ok(()))
    }

    /// The same, with changes that are made when all others are in the trees. An error of them
    /// makes the file system read-only.
    pub(super) fn commit_with(
        &self,
        logs: &mut Logs,
        change: impl FnOnce(&Exclusive<'_>) -> Result<()>,
    ) -> Result<u64> {
        let _unwinding = AbortOnUnwind(&self.abort);
        self.check_alive()?;
        self.with_hook(|hook| hook.before_commit())?;
        self.commit_now(logs, change).inspect_err(|error| self.abort(error.clone()))
    }

    /// Calls the hook, if there is one.
    pub(super) fn with_hook(
        &self,
        act: impl FnOnce(&dyn TransactionHook) -> Result<()>,
    ) -> Result<()> {
        self.hook.get().map_or(Ok(()), |hook| act(&**hook))
    }

    fn commit_now(
        &self,
        logs: &mut Logs,
        change: impl FnOnce(&Exclusive<'_>) -> Result<()>,
    ) -> Result<u64> {
        // Most references are run while other threads go on.
        self.run_references_in_passing()?;
        let exclusive = Exclusive::new(self);
        // A thread that had joined may have failed in the middle of a change.
        self.check_alive()?;
        self.with_hook(|hook| hook.in_commit(&exclusive))?;
        // Now, so that changes which threads note from here on make another commit due.
        self.timer().clear_work(&exclusive);
        // The commit makes all logs void.
        *logs = Logs::default();
        self.tree_space.give_up_log_blocks()?;
        change(&exclusive)?;
        let frozen = self.freeze(&exclusive)?;
        exclusive.forget_joins();
        if self.hook.get().is_some_and(|hook| hook.has_more()) {
            self.note_work();
        }
        drop(exclusive);
        let Some(frozen) = frozen else { return Ok(self.durable_generation()) };
        let generation = frozen.superblock.generation.get();
        self.write_out(frozen)?;
        self.durable.note_commit();
        tracing::debug!("generation {generation} is committed");
        Ok(generation)
    }

    /// Runs the delayed references that wait now, while other threads go on.
    pub(super) fn run_references_in_passing(&self) -> Result<()> {
        let mut left = self.tree_space.refs.len();
        while left > 0 {
            let handle = self.join()?;
            let done = self.bookkeeping.run_references(BATCH.min(left), self.generation());
            let done = done.inspect_err(|error| self.abort(error.clone()))?;
            drop(handle);
            if done == 0 {
                break;
            }
            left -= done;
        }
        Ok(())
    }

    /// Whether trees or the superblock were changed since the last commit, or a device was left out
    /// that its superblocks do not tell so.
    pub fn has_changes(&self) -> bool {
        self.tree_space.is_changed.load(Relaxed)
            || self.trees.lock_roots().is_dirty()
            || self.superblock.is_dirty()
            || self.volume.has_untold_failure()
    }

    /// Ends the running generation. `None` if nothing has changed in it.
    fn freeze(&self, exclusive: &Exclusive<'_>) -> Result<Option<Frozen>> {
        let is_changed = self.has_changes() || self.bookkeeping.device_stats.is_dirty();
        if !is_changed {
            return Ok(None);
        }
        self.superblock.clear_dirty();
        let generation = self.generation();
        self.trees.renew_root_tree()?;
        self.write_quotas(generation)?;
        self.bookkeeping.device_stats.write()?;
        self.bookkeeping.remove_empty_groups()?;
        self.write_until_stable(exclusive)?;
        let superblock = self.next_superblock(generation)?;
        self.tree_space.forget_dissolved(exclusive);
        self.space().forget_new_groups();
        let pinned = self.space().take_pinned();
        let blocks = self.trees.forest().freeze();
        self.tree_space.is_changed.store(false, Relaxed);
        self.timer().clear_new_blocks(exclusive);
        Ok(Some(Frozen { superblock, blocks, pinned }))
    }

    /// Runs references and writes groups and roots until this causes no more.
    fn write_until_stable(&self, exclusive: &Exclusive<'_>) -> Result<()> {
        let now = larder_device::now().into();
        for _ in 0..MOST_ROUNDS {
            while self.bookkeeping.run_references(BATCH, self.generation())? > 0 {}
            let wrote_groups = self.bookkeeping.write_groups()?;
            let wrote_roots = self.trees.write_roots(exclusive, now)?;
            if !wrote_groups && !wrote_roots && self.tree_space.refs.is_empty() {
                return Ok(());
            }
        }
        Err(Error::Unstable { rounds: MOST_ROUNDS })
    }

    fn next_superblock(&self, generation: u64) -> Result<Box<Superblock>> {
        let chunks = self.volume.chunks();
        let system_chunks =
            fitting_system_array(&chunks, self.volume.sectorsize()).ok_or(Error::SystemChunks)?;
        for (devid, bytes_used) in self.space().device_bytes_used() {
            if let Some(device) = self.volume.device(devid) {
                device.change_dev_item(|item| item.bytes_used = bytes_used.into());
            }
        }
        let committed = Committed {
            generation,
            root_tree: self.trees.root().root(),
            chunk_tree: self.trees.system().chunk.root(),
            bytes_used: self.space().bytes_used(),
            system_chunks: &system_chunks,
            roots: &self.trees.lock_roots(),
        };
        Ok(self.superblock.complete(&committed))
    }

    fn write_out(&self, frozen: Frozen) -> Result<()> {
        let Frozen { superblock, blocks, pinned } = frozen;
        let _writing = self.timer().writing();
        write_blocks(&self.volume, &blocks)?;
        self.exchange_replaced()?;
        self.volume.write_superblocks(&superblock)?;
        blocks.finish();
        self.durable.advance(&superblock);
        self.space().unpin(pinned)
    }

    /// Updates the quota tree, if quotas are on.
    fn write_quotas(&self, generation: u64) -> Result<()> {
        let Some((quotas, tree)) = self.quotas().zip(self.trees.system().quota.clone()) else {
            return Ok(());
        };
        quotas.write(&mut TreeItems::new(tree), generation)
    }
}
