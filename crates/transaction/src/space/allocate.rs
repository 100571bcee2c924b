//! Allocation: from memory, without searching a tree.
//!
//! A thread takes tree blocks one after the other from where its last one was, so that a commit
//! writes few long runs. Threads start in different places and do not meet. While content moves
//! together, all of them take the lowest place on the devices
//! that fits.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use larder_format::Logical;
use larder_volume::Chunk;
use larder_volume::layout::{Devices, Limits, Plan};

use super::{Group, GroupState, Space, SpaceKind};
use crate::chunk::fitting_system_array;
use crate::error::{Error, Result};

/// Places to allocate from at once; threads share them when there are more.
const HINTS: usize = 8;
/// How far apart threads start in a group.
const SPREAD_BYTES: u64 = 1 << 20;

/// Where the last allocation of each kind ended, for each of a few threads.
#[derive(Debug, Default)]
pub(super) struct Hints {
    ends: [[AtomicU64; HINTS]; SpaceKind::ALL.len()],
}

impl Hints {
    fn of_this_thread(&self, kind: SpaceKind) -> &AtomicU64 {
        &self.ends[kind as usize][slot_of_this_thread()]
    }
}

/// Everything is allocated at the lowest place that fits, until this is dropped.
pub(crate) struct LowestFirst<'s>(&'s Space);

impl LowestFirst<'_> {
    /// Makes new groups for data only before an end of the device with this id.
    pub(crate) fn set_data_end(&self, end: Option<(u64, u64)>) {
        self.0.policy.write().set_data_end(end);
    }
}

impl Drop for LowestFirst<'_> {
    fn drop(&mut self) {
        self.set_data_end(None);
        self.0.lowest_first.store(false, Relaxed);
    }
}

/// Where this thread starts in a group.
fn fresh_hint(group: &Group) -> u64 {
    let offset = slot_of_this_thread() as u64 * SPREAD_BYTES;
    group.start().0 + offset % group.len_bytes()
}

fn slot_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
    }
    SLOT.with(|slot| {
        let number = slot.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed) % HINTS);
        slot.set(Some(number));
        number
    })
}

impl Space {
    /// Allocates in the lowest groups on the devices, and there at the lowest addresses, from now
    /// on. One caller at a time.
    pub(crate) fn allocate_lowest_first(&self) -> LowestFirst<'_> {
        self.lowest_first.store(true, Relaxed);
        LowestFirst(self)
    }

    /// Allocates one tree block. Creates a chunk if no block group has enough space.
    pub fn allocate_block(&self, kind: SpaceKind) -> Result<Logical> {
        let len_bytes = u64::from(self.volume.nodesize());
        self.allocate(kind, len_bytes, len_bytes)
    }

    /// Allocates a range for data: `len_bytes` if they are free in one piece, or otherwise a half,
    /// a quarter, and so on, but at least `least_bytes`. Both are whole sectors. Returns the start
    /// and length.
    pub fn allocate_data(&self, len_bytes: u64, least_bytes: u64) -> Result<(Logical, u64)> {
        let sector = u64::from(self.volume.sectorsize());
        let mut len_bytes = len_bytes;
        loop {
            match self.allocate(SpaceKind::Data, len_bytes, sector) {
                Ok(start) => return Ok((start, len_bytes)),
                Err(Error::NoSpace { .. }) if len_bytes > least_bytes => {
                    len_bytes = (len_bytes / 2).next_multiple_of(sector).max(least_bytes);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Allocates exactly this range, which a log refers to that a crash left. Returns whether it
    /// was free.
    ///
    /// # Errors
    /// If no block group for `kind` contains it.
    pub fn claim_exactly(&self, kind: SpaceKind, range: &Range<u64>) -> Result<bool> {
        let start = Logical(range.start);
        let group = self
            .group_at(start)
            .filter(|group| group.holds(kind) && range.end <= group.range().end);
        let misplaced = || Error::extent(start, format!("it lies in no block group for {kind}"));
        let group = group.ok_or_else(misplaced)?;
        let is_claimed = group.claim_exactly(range);
        if is_claimed {
            self.account_of(group.flags()).reserved.add(range.end - range.start);
        }
        Ok(is_claimed)
    }

    fn allocate(&self, kind: SpaceKind, len_bytes: u64, align: u64) -> Result<Logical> {
        let hint = self.hints.of_this_thread(kind);
        loop {
            let seen = self.groups.read().len();
            if let Some((group, start)) = self.claim(kind, len_bytes, align, hint.load(Relaxed)) {
                hint.store(start.0 + len_bytes, Relaxed);
                self.account_of(group.flags()).reserved.add(len_bytes);
                return Ok(start);
            }
            self.create_chunk(kind, seen)?.ok_or(Error::NoSpace { kind, len_bytes })?;
        }
    }

    /// Allocates a range from the group of the hint, or from any other, those of the wanted profile
    /// first.
    fn claim(
        &self,
        kind: SpaceKind,
        len_bytes: u64,
        align: u64,
        hint: u64,
    ) -> Option<(Arc<Group>, Logical)> {
        let lowest_first = self.lowest_first.load(Relaxed);
        let from = |group: Arc<Group>| {
            let hint = match group.range() {
                range if lowest_first => range.start,
                range if range.contains(&hint) => hint,
                _ => fresh_hint(&group),
            };
            let start = group.claim(len_bytes, align, hint)?;
            Some((group, start))
        };
        let profile = self.profile(kind);
        let fits = |group: &Group| group.holds(kind) && group.chunk().profile() == profile;
        let hinted = self.group_at(Logical(hint)).filter(|group| !lowest_first && fits(group));
        if let Some(found) = hinted.and_then(from) {
            return Some(found);
        }
        let mut groups = self.groups();
        groups.retain(|group| group.holds(kind));
        if lowest_first {
            groups.sort_by_key(|group| group.highest_place());
        }
        let of_kind = |wanted: bool| {
            let groups = groups.iter().cloned();
            groups.filter(move |group| (group.chunk().profile() == profile) == wanted)
        };
        let is_safe_enough =
            |group: &Arc<Group>| group.chunk().profile().copies() >= profile.copies();
        of_kind(true).chain(of_kind(false).filter(is_safe_enough)).find_map(from)
    }

    /// Creates a block group for `kind`, in memory only; its items follow with the transaction.
    /// `seen` is how many groups there were when the caller found no space: if there are more now,
    /// another thread was faster. If metadata has too little for its reservations, the group is for
    /// metadata. `None` if the devices have no space.
    pub(super) fn create_chunk(&self, kind: SpaceKind, seen: usize) -> Result<Option<()>> {
        if kind != SpaceKind::System && !self.make_system_room()? {
            return Ok(None);
        }
        let mut devices = self.devices.lock();
        if self.groups.read().len() > seen {
            return Ok(Some(()));
        }
        self.avoid_left_out(&mut devices);
        let limits = self.limits(kind, &devices);
        let room = self.policy.read().room(kind, &devices);
        let plan = limits.plan(self.profile(kind), &room);
        let plan = plan.or_else(|| self.plan_with_left_out(kind, &limits, &room));
        let Some(plan) = plan else { return Ok(None) };
        let chunk = plan.chunk(self.next_logical(), kind.types(self.is_mixed))?;
        let mut after = devices.clone();
        after.take(&chunk);
        if kind == SpaceKind::Data && !self.is_mixed && !self.keeps_reservations(&after) {
            // Metadata first; then there may be space for data as well.
            drop(devices);
            return self.create_chunk(SpaceKind::Metadata, seen);
        }
        if kind == SpaceKind::System && !self.fits_system_array(&chunk)? {
            return Ok(None);
        }
        self.has_new_groups.store(true, Relaxed);
        self.volume.add_chunk(chunk.clone())?;
        *devices = after;
        let chunk = self.volume.chunk_at(chunk.logical()).expect("it was just added");
        let free = chunk.logical().0..chunk.end().0;
        let group = Arc::new(Group::new(chunk, 0, &[free], GroupState::New)?);
        // A thread can find the group only after it is among those that have no items yet.
        let mut changes = self.changes.lock();
        changes.dirty.insert(group.start().0);
        changes.created.push(group.clone());
        self.enter(group);
        drop(changes);
        self.update_profiles(&devices);
        drop(devices);
        self.update_reserve();
        Ok(Some(()))
    }

    /// New chunks avoid devices that refused writes since the last one was made.
    fn avoid_left_out(&self, devices: &mut Devices) {
        let usable = devices.usable().map(|space| space.devid);
        let left_out: Vec<u64> = usable.filter(|devid| self.is_left_out(*devid)).collect();
        for devid in &left_out {
            devices.change(*devid, |space| space.is_usable = false);
        }
        if !left_out.is_empty() {
            self.update_profiles(devices);
        }
    }

    /// What was promised before a device was left out still finds room: a chunk that is whole
    /// without it, and whose copy there follows when the device is brought up to date.
    fn plan_with_left_out(&self, kind: SpaceKind, limits: &Limits, room: &Devices) -> Option<Plan> {
        let mut all = room.clone();
        let left_out = room.iter().map(|space| space.devid).filter(|id| self.is_left_out(*id));
        for devid in left_out {
            all.change(devid, |space| space.is_usable = true);
        }
        let plan = limits.plan(self.policy.read().safest(kind), &all)?;
        let chunk = plan.clone().chunk(self.next_logical(), kind.types(self.is_mixed)).ok()?;
        chunk.survives(|stripe| self.is_left_out(stripe.devid)).then_some(plan)
    }

    fn is_left_out(&self, devid: u64) -> bool {
        self.volume.device(devid).is_some_and(|device| device.is_left_out())
    }

    /// Makes room in the chunk tree for the items of one more chunk.
    fn make_system_room(&self) -> Result<bool> {
        // The chunk, and the item of each device.
        let needed = self.insertion_bytes(1 + self.volume.devices().len() as u64);
        let seen = self.groups.read().len();
        let usage = self.usage(SpaceKind::System);
        Ok(usage.spoken_for() + needed <= usage.total
            || self.create_chunk(SpaceKind::System, seen)?.is_some())
    }

    pub(super) fn limits(&self, kind: SpaceKind, devices: &Devices) -> Limits {
        let total_bytes = devices.usable().map(|device| device.total_bytes).sum();
        Limits::new(kind, total_bytes, self.volume.nodesize())
    }

    /// Whether the superblock's array has room for one more system chunk.
    fn fits_system_array(&self, chunk: &Chunk) -> Result<bool> {
        let mut chunks = (*self.volume.chunks()).clone();
        chunks.insert(chunk.clone())?;
        Ok(fitting_system_array(&chunks, self.volume.sectorsize()).is_some())
    }

    /// New chunks come after all others in the address space.
    pub(super) fn next_logical(&self) -> Logical {
        self.volume.chunks().iter().map(|chunk| chunk.end()).max().unwrap_or_default()
    }
}
