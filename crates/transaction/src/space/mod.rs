//! Space: block groups in memory, reservations, and allocation that searches no tree.
//!
//! # Invariants
//! - An address is handed out once until it is released; pinned addresses are released only when
//!   neither the last durable state needs them nor one that a reader keeps (`kept.rs`).
//! - [`Reservation`]s and the global reserve together never exceed the space that is free or could
//!   be allocated as new chunks. A data chunk never takes space that metadata has reserved.
//! - Delayed references are paid for from when they are queued until they have been run
//!   (`reserve.rs`).
//! - Nothing here reads or changes a tree. Changes for the trees wait in `Changes`.
//! - A group that has no items yet is among the created groups before any thread can find it. While
//!   there is one, no thread gets the list of groups whose items are out of date.

mod account;
mod allocate;
mod available;
mod cut;
mod future;
mod group;
mod kept;
mod leaving;
mod moves;
mod policy;
mod reserve;
mod state;
#[cfg(test)]
mod tests;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

pub use larder_format::SpaceKind;
use larder_format::objectid::{BLOCK_GROUP_TREE, CSUM_TREE, EXTENT_TREE, FREE_SPACE_TREE};
use larder_format::{BlockGroupFlags, Logical, Profile};
use larder_locks::rank::{GROUPS, PINNED, POLICY, SPACE_CHANGES, SPACE_DEVICES};
use larder_locks::{RankedMutex, RankedRwLock};
use larder_volume::layout::Devices;
use larder_volume::{Chunk, Volume};

use self::account::{Account, Count};
use self::allocate::Hints;
pub(crate) use self::allocate::LowestFirst;
pub(crate) use self::kept::Keeping;
use self::kept::KeptStates;
use self::policy::ProfilePolicy;
use crate::error::{Error, Result};

pub use account::Usage;
pub use group::Group;
pub use reserve::{Priority, Reservation};
pub use state::GroupState;

/// A block group as it is loaded.
#[derive(Clone, Debug)]
pub struct LoadedGroup {
    /// Its address.
    pub start: Logical,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Type and profile.
    pub flags: BlockGroupFlags,
    /// Bytes that extents use.
    pub used: u64,
    /// Free ranges, ascending.
    pub free: Vec<Range<u64>>,
}

/// Changes of space that the running transaction has to write to the trees.
#[derive(Debug, Default)]
struct Changes {
    /// Starts of groups whose use has changed.
    dirty: BTreeSet<u64>,
    /// Groups that have no items yet, in the order of their creation.
    created: Vec<Arc<Group>>,
}

/// What can be released once the commit that no longer needs it is durable.
#[derive(Debug, Default)]
pub struct Pinned {
    ranges: Vec<Range<u64>>,
    chunks: Vec<Arc<Chunk>>,
}

/// All block groups of a file system.
pub struct Space {
    volume: Arc<Volume>,
    groups: RankedRwLock<BTreeMap<u64, Arc<Group>>, GROUPS>,
    /// Which profile new chunks get.
    policy: RankedRwLock<ProfilePolicy, POLICY>,
    accounts: [Account; SpaceKind::ALL.len()],
    /// Data and metadata share block groups.
    is_mixed: bool,
    devices: RankedMutex<Devices, SPACE_DEVICES>,
    changes: RankedMutex<Changes, SPACE_CHANGES>,
    pinned: RankedMutex<Pinned, PINNED>,
    kept: KeptStates,
    hints: Hints,
    /// Everything is allocated at the lowest place that fits.
    lowest_first: AtomicBool,
    /// There are groups that the last commit does not have.
    has_new_groups: AtomicBool,
    /// Some group may have become empty.
    may_have_empty_groups: AtomicBool,
    /// In blocks of the bookkeeping trees, whose changes delayed references are.
    bookkeeping_bytes: Count,
    /// The part of the reservations that is for running delayed references.
    owed_bytes: Count,
    /// The level of the highest root so far.
    highest_level: AtomicU8,
    /// Whether commits discard freed space.
    discards: AtomicBool,
}

impl Space {
    /// The space of `volume`, before its groups are loaded.
    pub fn new(volume: Arc<Volume>) -> Self {
        let types = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        Self {
            is_mixed: volume.chunks().iter().any(|chunk| chunk.flags().contains(types)),
            devices: RankedMutex::new(Devices::of(&volume.geometry())),
            volume,
            groups: RankedRwLock::default(),
            policy: RankedRwLock::default(),
            accounts: Default::default(),
            changes: RankedMutex::default(),
            pinned: RankedMutex::default(),
            kept: KeptStates::default(),
            hints: Hints::default(),
            lowest_first: AtomicBool::new(false),
            has_new_groups: AtomicBool::new(false),
            may_have_empty_groups: AtomicBool::new(true),
            bookkeeping_bytes: Count::default(),
            owed_bytes: Count::default(),
            highest_level: AtomicU8::new(0),
            discards: AtomicBool::new(false),
        }
    }

    /// Adds the groups, of which there is one for each chunk. Before anything is allocated.
    pub fn load(&self, loaded: &[LoadedGroup]) -> Result<()> {
        for group in loaded {
            self.enter(self.loaded_group(group)?);
        }
        let (groups, chunks) = (self.groups.read().len(), self.volume.chunks().len());
        if groups != chunks {
            return Err(Error::BlockGroupCount { groups, chunks });
        }
        self.update_profiles(&self.devices.lock());
        self.update_reserve();
        Ok(())
    }

    fn loaded_group(&self, loaded: &LoadedGroup) -> Result<Arc<Group>> {
        let chunk = self.volume.chunk_at(loaded.start).filter(|chunk| {
            chunk.logical() == loaded.start
                && chunk.len_bytes() == loaded.len_bytes
                && chunk.flags() == loaded.flags
        });
        let no_chunk = || Error::block_group(loaded.start, "there is no chunk just like it");
        let chunk = chunk.ok_or_else(no_chunk)?;
        let is_writable = self.can_write(&chunk);
        let state = if is_writable { GroupState::Open } else { GroupState::ReadOnly };
        Ok(Arc::new(Group::new(chunk, loaded.used, &loaded.free, state)?))
    }

    /// Whether every byte of a chunk gets at least one copy when it is written. Seeds are not
    /// written.
    fn can_write(&self, chunk: &Chunk) -> bool {
        let is_lost = |devid| {
            let device = self.volume.device(devid);
            device.is_none_or(|device| device.is_missing() || device.is_seed())
        };
        chunk.survives(|stripe| is_lost(stripe.devid))
    }

    /// Adds a group.
    fn enter(&self, group: Arc<Group>) {
        let account = self.account_of(group.flags());
        account.total.add(group.len_bytes());
        account.unusable.add(group.unusable_bytes());
        account.used.add(group.used());
        if group.state() == GroupState::ReadOnly {
            account.unusable.add(group.free_bytes());
        }
        self.groups.write().insert(group.start().0, group);
    }

    /// Notes the size of a bookkeeping tree, before groups are loaded.
    pub(crate) fn note_bookkeeping(&self, tree: u64, len_bytes: u64) {
        if is_bookkeeping(tree) {
            self.bookkeeping_bytes.add(len_bytes);
        }
    }

    /// A block of `tree` was allocated.
    pub(crate) fn block_added(&self, tree: u64) {
        self.note_bookkeeping(tree, u64::from(self.volume.nodesize()));
    }

    /// A block of `tree` was dropped. The size in a root item may have been too small.
    pub(crate) fn block_dropped(&self, tree: u64) {
        if is_bookkeeping(tree) {
            self.bookkeeping_bytes.sub_at_most(u64::from(self.volume.nodesize()));
        }
    }

    /// The group that contains an address.
    pub fn group_at(&self, logical: Logical) -> Option<Arc<Group>> {
        let groups = self.groups.read();
        let (_, group) = groups.range(..=logical.0).next_back()?;
        group.range().contains(&logical.0).then(|| group.clone())
    }

    /// All groups in order of their addresses.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().values().cloned().collect()
    }

    /// The space for `kind`, and its uses.
    pub fn usage(&self, kind: SpaceKind) -> Usage {
        self.account(kind).usage()
    }

    /// Bytes that extents use in all block groups: the superblock's `bytes_used`.
    pub fn bytes_used(&self) -> u64 {
        self.groups.read().values().map(|group| group.used()).sum()
    }

    /// Bytes of each device that chunks take, by its id.
    pub fn device_bytes_used(&self) -> Vec<(u64, u64)> {
        let devices = self.devices.lock();
        devices.iter().map(|device| (device.devid, device.bytes_used())).collect()
    }

    /// Calls `use_devices` with the allocated space of the devices.
    pub fn with_devices<T>(&self, use_devices: impl FnOnce(&Devices) -> T) -> T {
        use_devices(&self.devices.lock())
    }

    fn account(&self, kind: SpaceKind) -> &Account {
        let kind = match kind {
            SpaceKind::Data if self.is_mixed => SpaceKind::Metadata,
            kind => kind,
        };
        &self.accounts[kind as usize]
    }

    fn account_of(&self, flags: BlockGroupFlags) -> &Account {
        self.account(SpaceKind::of_types(flags).expect("a chunk has a type"))
    }

    /// An allocated range entered the extent tree.
    pub fn inserted(&self, range: &Range<u64>) -> Result<()> {
        let (group, account, len_bytes) = self.of_range(range)?;
        group.reserved.fetch_sub(len_bytes, Relaxed);
        account.reserved.sub(len_bytes);
        group.used.fetch_add(len_bytes, Relaxed);
        account.used.add(len_bytes);
        self.changes.lock().dirty.insert(group.start().0);
        Ok(())
    }

    /// A range left the extent tree. The last durable state still has it.
    pub fn removed(&self, range: &Range<u64>) -> Result<()> {
        let (group, account, len_bytes) = self.of_range(range)?;
        if group.used() < len_bytes {
            let problem = format!("{len_bytes} bytes go of {} used", group.used());
            return Err(Error::block_group(group.start(), problem));
        }
        group.pinned.fetch_add(len_bytes, Relaxed);
        account.pinned.add(len_bytes);
        group.used.fetch_sub(len_bytes, Relaxed);
        account.used.sub(len_bytes);
        self.changes.lock().dirty.insert(group.start().0);
        self.pinned.lock().ranges.push(range.clone());
        Ok(())
    }

    /// An allocated range is not needed any more and never entered the extent tree. Something on a
    /// device may already refer to it, such as a log tree.
    pub fn abandoned(&self, range: &Range<u64>) -> Result<()> {
        let (group, account, len_bytes) = self.of_range(range)?;
        group.pinned.fetch_add(len_bytes, Relaxed);
        account.pinned.add(len_bytes);
        group.reserved.fetch_sub(len_bytes, Relaxed);
        account.reserved.sub(len_bytes);
        self.pinned.lock().ranges.push(range.clone());
        Ok(())
    }

    /// An allocated range is not needed any more and nothing on a device ever referred to it.
    pub fn unused(&self, range: &Range<u64>) -> Result<()> {
        let (group, account, len_bytes) = self.of_range(range)?;
        group.release(range.clone());
        group.reserved.fetch_sub(len_bytes, Relaxed);
        account.reserved.sub(len_bytes);
        Ok(())
    }

    /// Takes the ranges to release when the running transaction is durable.
    pub fn take_pinned(&self) -> Pinned {
        std::mem::take(&mut *self.pinned.lock())
    }

    /// Makes commits discard freed space, or not; `None`: if a device wants that.
    pub fn set_discards(&self, discards: Option<bool>) {
        let discards = discards.unwrap_or_else(|| self.volume.wants_discards());
        self.discards.store(discards, Relaxed);
    }

    /// Discards space on the devices that no durable state needs any more. A
    /// device that cannot keeps its content: nothing depends on it.
    fn discard(&self, pinned: &Pinned) {
        let mut ranges = pinned.ranges.clone();
        ranges.sort_unstable_by_key(|range| range.start);
        for run in ranges.chunk_by(|a, b| a.end == b.start) {
            let (start, end) = (run[0].start, run[run.len() - 1].end);
            // A removed group is not mapped any more.
            let _ = self.volume.discard(Logical(start), end - start);
        }
    }

    /// Releases space that was pinned for a transaction that is durable now, once no reader keeps an
    /// earlier state.
    pub fn unpin(&self, pinned: Pinned) -> Result<()> {
        let pinned = self.withhold(pinned)?;
        self.release(pinned)
    }

    fn release(&self, pinned: Pinned) -> Result<()> {
        // Before the space can be allocated again.
        if self.discards.load(Relaxed) {
            self.discard(&pinned);
        }
        for range in pinned.ranges {
            let (group, account, len_bytes) = self.of_range(&range)?;
            group.release(range);
            group.pinned.fetch_sub(len_bytes, Relaxed);
            account.pinned.sub(len_bytes);
        }
        let mut devices = self.devices.lock();
        pinned.chunks.iter().for_each(|chunk| devices.give(chunk));
        drop(devices);
        self.may_have_empty_groups.store(true, Relaxed);
        self.update_reserve();
        Ok(())
    }

    /// Whether there are groups that the last commit does not have.
    pub fn has_new_groups(&self) -> bool {
        self.has_new_groups.load(Relaxed)
    }

    /// A commit that has all groups is about to be written.
    pub(crate) fn forget_new_groups(&self) {
        self.has_new_groups.store(false, Relaxed);
    }

    /// Takes the list of groups whose items are out of date, unless there is one that has no items
    /// yet.
    pub fn take_dirty(&self) -> Option<BTreeSet<u64>> {
        let mut changes = self.changes.lock();
        changes.created.is_empty().then(|| std::mem::take(&mut changes.dirty))
    }

    /// Takes the next new group, whose items the caller inserts.
    pub fn next_created(&self) -> Option<Arc<Group>> {
        let created = &mut self.changes.lock().created;
        let next = if created.is_empty() { None } else { Some(created.remove(0)) };
        next.inspect(|group| group.open())
    }

    /// Returns the open groups that are empty, except the last of each type and profile, and those
    /// that leave, except the last of each type; nothing is allocated from them any more. The
    /// caller removes them from the trees and then calls [`remove`](Self::remove).
    pub fn take_empty_groups(&self) -> Vec<Arc<Group>> {
        if !self.may_have_empty_groups.swap(false, Relaxed) {
            return Vec::new();
        }
        let mut groups = self.groups();
        let mut emptied = Vec::new();
        while let Some(at) = groups.iter().position(|group| self.is_spare(group, &groups)) {
            let group = groups.swap_remove(at);
            if group.empty() {
                emptied.push(group);
            }
        }
        emptied
    }

    /// Whether there are groups that [`take_empty_groups`](Self::take_empty_groups) would return.
    pub fn has_empty_groups(&self) -> bool {
        let groups = self.groups();
        groups.iter().any(|group| self.is_spare(group, &groups))
    }

    /// Whether nothing in a group is in use, and `groups` has another one that serves its purpose.
    fn is_spare(&self, group: &Arc<Group>, groups: &[Arc<Group>]) -> bool {
        if !group.is_empty() || group.moves() {
            return false;
        }
        let others = groups.iter().filter(|other| !Arc::ptr_eq(other, group));
        let mut open = others.filter(|other| other.state() == GroupState::Open);
        let (flags, types) = (group.flags(), !BlockGroupFlags::PROFILES);
        match group.state() {
            GroupState::Open => open.any(|other| other.flags() == flags) && self.can_spare(group),
            GroupState::Leaving => open.any(|other| other.flags() & types == flags & types),
            _ => false,
        }
    }

    /// Whether there is space for all reservations without a group too.
    fn can_spare(&self, group: &Group) -> bool {
        let usage = self.account_of(group.flags()).usage();
        let is_metadata = group.flags().contains(SpaceKind::Metadata.flag());
        let has_headroom = is_metadata && !self.is_mixed;
        let headroom = if has_headroom { self.headroom(&self.devices.lock()) } else { 0 };
        usage.spoken_for() + usage.global_reserve + headroom + group.len_bytes() <= usage.total
    }

    /// Drops a group that is in no tree any more. Its space on devices comes back with
    /// [`unpin`](Self::unpin).
    pub fn remove(&self, group: &Arc<Group>) {
        let account = self.account_of(group.flags());
        account.total.sub(group.len_bytes());
        account.unusable.sub(group.unusable_bytes());
        self.stop_withdrawing(group);
        self.groups.write().remove(&group.start().0);
        self.update_profiles(&self.devices.lock());
        self.changes.lock().dirty.remove(&group.start().0);
        self.volume.remove_chunk(group.start());
        self.pinned.lock().chunks.push(group.chunk());
    }

    /// Marks a chunk's space on the devices as unused, while no thread may allocate it yet.
    pub fn retire(&self, chunk: &Chunk) {
        self.devices.lock().retire(chunk);
    }

    fn of_range(&self, range: &Range<u64>) -> Result<(Arc<Group>, &Account, u64)> {
        let start = Logical(range.start);
        let group = self.group_at(start).filter(|group| range.end <= group.range().end);
        let group = group.ok_or_else(|| Error::extent(start, "it lies in no block group"))?;
        let account = self.account_of(group.flags());
        Ok((group, account, range.end - range.start))
    }

    /// The profile of new chunks for `kind`.
    pub fn profile(&self, kind: SpaceKind) -> Profile {
        self.policy.read().profile(kind)
    }

    /// Sets the profile that new chunks for `kind` get whatever exists; `None`: the safest of the
    /// existing ones. What is promised from chunks to come follows.
    pub fn set_target_profile(&self, kind: SpaceKind, target: Option<Profile>) {
        self.policy.write().set_target(kind, target);
        self.update_reserve();
    }

    /// Tells the policy which groups there are.
    fn update_profiles(&self, devices: &Devices) {
        let present = self.is_degraded().then_some(devices);
        let has_room = |kind, profile| self.limits(kind, devices).plan(profile, devices).is_some();
        let mut policy = self.policy.write();
        policy.update(&self.groups());
        policy.look_at_devices(present, has_room);
    }

    /// Whether devices are missing or left out.
    pub(crate) fn is_degraded(&self) -> bool {
        self.volume.devices().iter().any(|device| !device.takes_chunks() && !device.is_seed())
    }

    /// The profile that a group should have: that of the safest ones of its kind. `None` if it has
    /// as many copies.
    pub fn complete_profile(&self, group: &Group) -> Option<Profile> {
        let kind = SpaceKind::of_types(group.flags())?;
        let (own, safest) = (group.chunk().profile(), self.policy.read().safest(kind));
        let safety = |profile: Profile| (profile.shape().tolerated_losses(), profile.copies());
        (safety(own) < safety(safest)).then_some(safest)
    }
}

/// Whether running delayed references changes this tree.
fn is_bookkeeping(tree: u64) -> bool {
    matches!(tree, EXTENT_TREE | CSUM_TREE | FREE_SPACE_TREE | BLOCK_GROUP_TREE)
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let usage = |kind| self.usage(kind);
        f.debug_struct("Space")
            .field("data", &usage(SpaceKind::Data))
            .field("metadata", &usage(SpaceKind::Metadata))
            .field("system", &usage(SpaceKind::System))
            .finish_non_exhaustive()
    }
}
