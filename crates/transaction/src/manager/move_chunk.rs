//! Moving a chunk to other places on devices, or to another profile.
//!
//! The chunk keeps its addresses, so that no reference changes and nothing that shares its content
//! is touched: the work is that of copying what is in use, however many snapshots there are.
//!
//! # Invariants
//! - The commit that names the new layout comes after everything in it is durable. Until that commit
//!   is durable, writes go to the old layout too (`larder_volume`, `moving.rs`): a crash finds the
//!   one or the other, complete.
//! - The old places are free after that commit, and after the last request that used them.
//! - A move that fails before its commit leaves the chunk where it was.

use std::sync::Arc;

use larder_format::{Logical, Profile};
use larder_volume::{Chunk, ChunkStripe};

use super::TransactionManager;
use crate::copy::{Copier, Moved};
use crate::error::Result;
use crate::space::{Group, Priority};

/// Items of the chunk tree, the device tree and the block group tree that a move changes besides
/// one for each stripe.
const ITEMS: u64 = 4;

impl TransactionManager {
    /// Moves the chunk at `start`, if it is still there, to a layout with this profile and without the
    /// stripes that leave, and commits. Calls `advance` with bytes that are copied; an error of it
    /// ends the move.
    ///
    /// # Errors
    /// [`Error::NoPlace`](crate::Error::NoPlace) if the devices have no room for it.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](super::Handle), or another thread moves a chunk.
    pub(super) fn move_chunk(
        &self,
        start: Logical,
        profile: Profile,
        leaves: impl Fn(&ChunkStripe) -> bool,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Moved> {
        let Some((group, to)) = self.bookkeeping.begin_move(start, profile, leaves)? else {
            return Ok(Moved::default());
        };
        let moving = Moving { manager: self, group, to };
        self.volume().begin_move((*moving.to).clone())?;
        let moved = Copier::new(self, advance)?.copy_to_other_layout(&moving.group)?;
        // Before any superblock leads to it.
        self.volume().flush()?;
        let from = moving.group.chunk();
        let stripes = (from.stripes().len() + moving.to.stripes().len()) as u64;
        let handle = self.start(ITEMS + 2 * stripes, Priority::Cleaning)?;
        let exchanged = self.bookkeeping.exchange_layouts(&moving.group, &moving.to);
        exchanged.inspect_err(|error| self.abort(error.clone()))?;
        handle.end()?;
        self.commit()?;
        Ok(moved)
    }
}

/// A move in progress; ends when this is dropped.
struct Moving<'m> {
    manager: &'m TransactionManager,
    group: Arc<Group>,
    to: Arc<Chunk>,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let left = self.manager.volume().end_move();
        self.manager.space().end_move(&self.group, left.as_ref().unwrap_or(&self.to));
    }
}
