//! Emptying one block group, batch after batch.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_btree::TreeView;
use larder_format::Logical;

use super::content::Content;
use super::plan::Plan;
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::extent::{FoundExtent, extents};
use crate::manager::bookkeeping::BATCH;
use crate::manager::{Exclusive, TransactionManager};
use crate::space::{Group, GroupState, Priority, Reservation, SpaceKind};

/// Data of a batch, unless one extent is longer.
const BATCH_BYTES: u64 = 32 << 20;
/// Extents of a batch.
const BATCH_EXTENTS: usize = 1024;
/// With more tree blocks, a batch gets no further extents.
const MANY_BLOCKS: usize = 4096;
/// Commits that find nothing to move although the group is in use.
const MOST_WAITS: usize = 16;

/// What emptying a block group did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// What copying its data found.
    pub moved: Moved,
    /// Whether the group is gone. If not, a reader keeps a state that needs it, and the next commit
    /// after that removes it; or it was empty, and the last of its kind.
    pub is_removed: bool,
}

/// An extent that is to move.
enum Candidate {
    Block(FoundExtent),
    Data(Content),
}

impl Candidate {
    fn extent(&self) -> &FoundExtent {
        match self {
            Self::Block(extent) => extent,
            Self::Data(content) => &content.extent,
        }
    }
}

/// What became of a batch.
enum Outcome {
    /// It moved, or was gone already.
    Moved,
    /// Not even its first extent fits. So many bytes of metadata are needed for it.
    NoRoom(u64),
}

/// A group that leaves, until this is dropped.
struct LeavingGroup<'m> {
    manager: &'m TransactionManager,
    group: Arc<Group>,
    /// Extents whose space is taken, in the order in which they move.
    candidates: VecDeque<Candidate>,
    room: Option<Reservation>,
    moved: Moved,
}

impl TransactionManager {
    /// Moves everything in the block group at `start` to others, which may be made for that, and
    /// removes the group. Calls `advance` with bytes that have moved; an error of it ends the work.
    /// Other threads may use the file system meanwhile. What has moved before an error stays there.
    ///
    /// Returns `None` if there is no such group, or it cannot be written.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no room outside of the group.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn empty_group(
        &self,
        start: Logical,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Option<Emptied>> {
        let _turn = self.device_work.try_lock().ok_or(Error::OtherWork)?;
        self.empty_one_group(start, advance)
    }

    /// The same, for a caller that keeps other work on devices from beginning.
    pub(in crate::manager) fn empty_one_group(
        &self,
        start: Logical,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Option<Emptied>> {
        self.check_alive()?;
        if !self.bookkeeping.removes_groups() {
            let reason = "block groups cannot be emptied without a free space tree: mount the file \
                          system once with the kernel and -o space_cache=v2";
            return Err(Error::Devices(reason.into()));
        }
        let found = self.space().group_at(start).filter(|group| group.start() == start);
        let Some(group) = found else { return Ok(None) };
        let place = self.reserve_elsewhere(&group)?;
        let Some(group) = self.bookkeeping.begin_leaving(start)? else { return Ok(None) };
        drop(place);
        let (candidates, room, moved) = Default::default();
        let mut leaving = LeavingGroup { manager: self, group, candidates, room, moved };
        leaving.empty(advance)?;
        Ok(Some(leaving.finish()?))
    }

    /// Moves what is in a part of a group to other groups, which may be made for that, or to lower
    /// addresses in this one. Otherwise as [`empty_one_group`](Self::empty_one_group).
    pub(in crate::manager) fn move_part(
        &self,
        group: &Arc<Group>,
        part: Range<u64>,
        advance: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Moved> {
        let (candidates, room, moved) = Default::default();
        let mut leaving =
            LeavingGroup { manager: self, group: group.clone(), candidates, room, moved };
        let mut at = part.start;
        while leaving.take_candidates(at..part.end)? {
            at = leaving.candidates.back().expect("there are some").extent().range.end;
            while !leaving.candidates.is_empty() {
                leaving.move_candidates(advance)?;
            }
        }
        leaving.commit()?;
        Ok(leaving.moved)
    }
}

impl TransactionManager {
    /// Reserves as much as a group holds and could hold. Once the group leaves, what others were
    /// promised, and its content, have a place elsewhere.
    fn reserve_elsewhere(&self, group: &Group) -> Result<Option<Reservation>> {
        let (space, len_bytes) = (self.space(), group.used() + group.free_bytes());
        if !group.holds(SpaceKind::System) {
            let holds_metadata = group.holds(SpaceKind::Metadata);
            let kind = if holds_metadata { SpaceKind::Metadata } else { SpaceKind::Data };
            return self.reserve(kind, len_bytes, Priority::Normal).map(Some);
        }
        while let Some(len_bytes) = space.missing_system_group(group) {
            // It must not take the place of a chunk that metadata was promised.
            let _place = self.reserve(SpaceKind::Metadata, len_bytes, Priority::Normal)?;
            space.make_system_group()?;
        }
        Ok(None)
    }
}

impl LeavingGroup<'_> {
    fn empty(&mut self, advance: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let mut waits = 0;
        while !self.is_empty() {
            if self.candidates.is_empty() && !self.take_candidates(self.group.range())? {
                // Threads that had allocated here enter that before they leave.
                waits += 1;
                if waits > MOST_WAITS {
                    let problem = format!("{} bytes in it have no extents", self.group.used());
                    return Err(Error::block_group(self.group.start(), problem));
                }
                self.commit()?;
                continue;
            }
            self.move_candidates(advance)?;
        }
        Ok(())
    }

    /// Moves the first candidates, and gets room for the next ones if there was too little.
    fn move_candidates(&mut self, advance: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let before = self.bytes_left();
        let outcome = self.move_batch()?;
        advance(before - self.bytes_left())?;
        if let Outcome::NoRoom(len_bytes) = outcome {
            self.room = None;
            let room = self.manager.reserve(SpaceKind::Metadata, len_bytes, self.priority())?;
            self.room = Some(room);
        }
        Ok(())
    }

    /// Blocks that are copied because data moves give back as much as the copies take. What moves
    /// out of a group for metadata does so only when the group goes, which a reader may delay.
    fn priority(&self) -> Priority {
        let takes_more =
            self.group.holds(SpaceKind::Metadata) || self.group.holds(SpaceKind::System);
        if takes_more { Priority::Normal } else { Priority::Freeing }
    }

    fn is_empty(&self) -> bool {
        self.group.used() == 0 && self.group.reserved_bytes() == 0
    }

    fn bytes_left(&self) -> u64 {
        self.candidates.iter().map(|candidate| candidate.extent().len_bytes()).sum()
    }

    /// Takes the first extents of a part of the group. Space for data is taken, and what cannot
    /// change is copied. Returns whether there are any.
    fn take_candidates(&mut self, part: Range<u64>) -> Result<bool> {
        let manager = self.manager;
        let tree = TreeView::Live(manager.trees.extent().clone());
        let (mut found, mut data_bytes) = (Vec::new(), 0);
        for extent in extents(&tree, manager.volume.nodesize(), part.start..self.group.range().end)
        {
            let extent = extent?;
            if extent.range.start >= part.end {
                break;
            }
            if !extent.is_tree_block {
                data_bytes += extent.len_bytes();
            }
            found.push(extent);
            if data_bytes >= BATCH_BYTES || found.len() >= BATCH_EXTENTS {
                break;
            }
        }
        let room = self.reserve_data(&mut found)?;
        for extent in found {
            if extent.is_tree_block {
                self.candidates.push_back(Candidate::Block(extent));
                continue;
            }
            match self.allocate(&extent) {
                Ok(to) => {
                    self.candidates.push_back(Candidate::Data(Content::new(extent, to)));
                }
                // These first: they may make room.
                Err(Error::NoSpace { .. }) if !self.candidates.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        drop(room);
        for candidate in &mut self.candidates {
            if let Candidate::Data(content) = candidate {
                content.copy_if_fixed(manager)?;
            }
        }
        Ok(!self.candidates.is_empty())
    }

    /// Takes the space to which data moves.
    fn allocate(&self, extent: &FoundExtent) -> Result<Logical> {
        let (space, len_bytes) = (self.manager.space(), extent.len_bytes());
        let (to, _) = space.allocate_data(len_bytes, len_bytes)?;
        if to.0 > extent.range.start && self.group.range().contains(&to.0) {
            space.unused(&(to.0..to.0 + len_bytes))?;
            return Err(Error::NoSpace { kind: SpaceKind::Data, len_bytes });
        }
        Ok(to)
    }

    /// Reserves space for the data of extents; if there is too little, for fewer of them.
    fn reserve_data(&self, found: &mut Vec<FoundExtent>) -> Result<Option<Reservation>> {
        loop {
            let data = found.iter().filter(|extent| !extent.is_tree_block);
            let len_bytes = data.map(FoundExtent::len_bytes).sum();
            if len_bytes == 0 {
                return Ok(None);
            }
            match self.manager.reserve(SpaceKind::Data, len_bytes, Priority::Normal) {
                Err(Error::NoSpace { .. }) if found.len() > 1 => found.truncate(found.len() / 2),
                reserved => return reserved.map(Some),
            }
        }
    }

    /// Moves the first candidates, as many as there is room for, in one commit.
    fn move_batch(&mut self) -> Result<Outcome> {
        let manager = self.manager;
        let mut logs = manager.lock_committing();
        let mut outcome = Ok(Outcome::Moved);
        manager.commit_with(&mut logs, |exclusive| {
            // From here on the extent tree has every reference.
            while manager.bookkeeping.run_references(BATCH, manager.generation())? > 0 {}
            let mut has_begun = false;
            outcome = self.change(exclusive, &mut || has_begun = true);
            match &outcome {
                Err(error) if has_begun => Err(error.clone()),
                _ => Ok(()),
            }
        })?;
        outcome
    }

    fn change(&mut self, exclusive: &Exclusive<'_>, begin: &mut dyn FnMut()) -> Result<Outcome> {
        let manager = self.manager;
        let mut most = usize::MAX;
        loop {
            let (mut plan, count) = self.plan(exclusive, most)?;
            let needed = self.room_for(&plan);
            let held = self.room.as_ref().map_or(0, Reservation::len_bytes);
            let space = manager.space();
            let len_bytes = needed.saturating_sub(held);
            let more = space.try_reserve(SpaceKind::Metadata, len_bytes, self.priority());
            let room = match more {
                Ok(room) => room,
                Err(Error::NoSpace { .. }) if count > 1 => {
                    most = count / 2;
                    continue;
                }
                Err(Error::NoSpace { .. }) => return Ok(Outcome::NoRoom(needed)),
                Err(error) => return Err(error),
            };
            for moving in plan.data.values_mut() {
                moving.content.copy_rest(manager)?;
                self.moved.add(&moving.content.moved);
            }
            manager.tree_space.is_changed.store(true, Relaxed);
            plan.carry_out(exclusive, begin)?;
            self.give_up(count, |content| !plan.data.contains_key(&content.extent.range.start))?;
            drop((room, self.room.take()));
            return Ok(Outcome::Moved);
        }
    }

    /// What moves with the first candidates, at most `most`, and how many these are.
    fn plan(&self, exclusive: &Exclusive<'_>, most: usize) -> Result<(Plan, usize)> {
        let backrefs = exclusive.backrefs();
        let (mut plan, mut count) = (Plan::default(), 0);
        for candidate in self.candidates.iter().take(most) {
            if plan.blocks.len() > MANY_BLOCKS {
                break;
            }
            count += 1;
            let extent = candidate.extent();
            // It may be gone by now.
            let now = backrefs.extent_at(Logical(extent.range.start))?.filter(|now| {
                now.range == extent.range
                    && now.generation == extent.generation
                    && now.is_tree_block == extent.is_tree_block
            });
            let Some(now) = now else { continue };
            let generation = self.manager.generation();
            match candidate {
                Candidate::Block(_) => plan.add_block(&backrefs, generation, now)?,
                Candidate::Data(content) => {
                    plan.add_data(&backrefs, generation, &now, content.clone())?;
                }
            }
        }
        plan.find_exclusive();
        Ok((plan, count))
    }

    /// Bytes of metadata that a plan takes at worst.
    fn room_for(&self, plan: &Plan) -> u64 {
        let manager = self.manager;
        let (space, nodesize) = (manager.space(), u64::from(manager.volume.nodesize()));
        let copied = plan.blocks.len() as u64 * nodesize;
        // Each is copied with those above it, and none is split.
        let unshared = space.insertion_bytes(plan.unshared.len() as u64) / 2;
        let sums = plan.data.values().map(|moving| {
            let sectors =
                moving.content.extent.len_bytes() / u64::from(manager.volume.sectorsize());
            sectors * manager.volume.checksum_type().size() as u64
        });
        let references = plan.changed_references() + plan.data.len() as u64;
        copied + unshared + 2 * sums.sum::<u64>() + space.reference_bytes(references)
    }

    /// Forgets the first `count` candidates, and gives back the space of those that are not needed.
    fn give_up(&mut self, count: usize, needless: impl Fn(&Content) -> bool) -> Result<()> {
        for candidate in self.candidates.drain(..count) {
            if let Candidate::Data(content) = candidate
                && needless(&content)
            {
                self.manager.space().unused(&content.target())?;
            }
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.manager.tree_space.is_changed.store(true, Relaxed);
        self.manager.commit().map(drop)
    }

    /// Removes the group, now or with a later commit.
    fn finish(self) -> Result<Emptied> {
        self.commit()?;
        let is_removed = self.group.state() == GroupState::Emptied;
        Ok(Emptied { moved: self.moved, is_removed })
    }
}

impl Drop for LeavingGroup<'_> {
    fn drop(&mut self) {
        let count = self.candidates.len();
        if let Err(error) = self.give_up(count, |_| true) {
            tracing::error!("space that content was to move to stays taken: {error}");
        }
        let space = self.manager.space();
        if !self.is_empty() || !space.has_other_group(&self.group) {
            space.end_leaving(&self.group);
        }
    }
}
