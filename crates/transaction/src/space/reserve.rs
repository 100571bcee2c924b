//! Reservations: a thread reserves space before it changes anything, so that no change fails half
//! way.
//!
//! The unit of reservations for tree blocks is the worst case of inserting one item: every level of
//! a tree copied and split.
//!
//! Delayed references are work for later. Space is spoken for from the moment that one is queued
//! until it has been run (`Space` is the [`Payer`] of the queue). An operation that queues many
//! reserves for them before, with [`Space::reference_bytes`]. Others may owe more than there is, as
//! when the first change of a leaf after a snapshot adds a reference to all that the leaf refers to.
//! Then no thread gets space before threads have run them, and the global reserve pays: it has room
//! for a copy of all bookkeeping trees.
//!
//! How much that is: a file extent item takes 78 bytes, so a leaf of 16 KiB refers to 208 extents at
//! most, and one of 64 KiB to 838. Each costs [`INSERTIONS_PER_REFERENCE`] insertions, for which the
//! queue sets [`GROWTH_BYTES`] aside: 208 KiB for a leaf of 16 KiB, 838 KiB for one of 64 KiB. An
//! operation copies a leaf for each item that it changes at most, and only operations that are in
//! progress can owe. What they take in the end is less: a copy of each bookkeeping block once,
//! however many references change it, and the items of the references, of at most 37 bytes inside
//! the extent's item or 78 as their own. A reservation of all of that for each operation in a tree
//! with snapshots would refuse changes on small file systems which fit.
//!
//! A caller that deletes may take from the global reserve, but no caller may take so much that
//! commits or those after it have none. What a caller may take depends on what comes back: who
//! deletes a name in a tree that shares blocks with a snapshot copies these, and their space never
//! comes back. The reserve that is wanted counts, not what is left of it: otherwise many small
//! deletions would take half of the rest again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::node::MAX_LEVELS;
use larder_volume::layout::Devices;

use super::{Space, SpaceKind, Usage};
use crate::error::{Error, Result};
use crate::refs::Payer;

/// The minimum that is kept for bookkeeping and deleting, in items that could be inserted.
const LEAST_GLOBAL_RESERVE_ITEMS: u64 = 64;
/// The share of used space that is kept at least, for bookkeeping that grows with it.
const GLOBAL_RESERVE_SHARE: u64 = 8;
/// The maximum that is kept for bookkeeping and deleting.
const MOST_GLOBAL_RESERVE: u64 = 512 << 20;
/// The next mount must have space for so many items, at the kernel's worst case for each: the
/// kernel keeps a larger reserve than Larder. If data took the rest of the devices, only deletions
/// would have space there.
const HEADROOM_ITEMS: u64 = 64;
/// The share of small devices that this is at most.
const HEADROOM_SHARE: u64 = 16;
/// Items of the bookkeeping trees that running a reference inserts at worst: the extent or the
/// reference, and free space.
const INSERTIONS_PER_REFERENCE: u64 = 2;
/// Insertions that make the bookkeeping trees higher, or that are the first in an empty one.
const HIGHER_TREES: u64 = 4;
/// By how much an insertion makes the bookkeeping trees grow at most, apart from the splits of leaves
/// that were there before: its item, in leaves that are half full.
const GROWTH_BYTES: u64 = 512;

/// The purpose of a reservation. Each of them may use more of the global reserve than those before,
/// so that none takes what the next ones need; the rest is for commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Does not touch the global reserve.
    Normal,
    /// For removing parts of files in a tree that may share blocks.
    Cutting,
    /// For deleting files in such a tree.
    Deleting,
    /// For deleting and removing parts of what shares nothing, and for deleting whole subvolumes: a
    /// commit gives back more than these take.
    Freeing,
    /// For freeing the space of deleted inodes and subvolumes, while other threads may wait for it.
    Cleaning,
}

impl Priority {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Normal, Self::Cutting, Self::Deleting, Self::Freeing, Self::Cleaning];

    /// For removing parts of files in a tree whose last snapshot was taken in this generation, 0 if
    /// never.
    pub fn of_cut(last_snapshot: u64) -> Self {
        if last_snapshot == 0 { Self::Freeing } else { Self::Cutting }
    }

    /// For deleting files in such a tree.
    pub fn of_deletion(last_snapshot: u64) -> Self {
        if last_snapshot == 0 { Self::Freeing } else { Self::Deleting }
    }
}

/// Reserved space, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    space: Arc<Space>,
    kind: SpaceKind,
    len_bytes: u64,
}

impl Reservation {
    /// Its size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Its kind.
    pub fn kind(&self) -> SpaceKind {
        self.kind
    }

    /// Gives all except `len_bytes` back.
    pub fn shrink_to(&mut self, len_bytes: u64) {
        let given_back = self.len_bytes.saturating_sub(len_bytes);
        *self.space.account(self.kind).may_use.lock() -= given_back;
        self.len_bytes -= given_back;
    }

    /// Adds another reservation of the same kind to this one.
    ///
    /// # Panics
    /// If it is of another kind.
    pub fn absorb(&mut self, mut other: Self) {
        assert_eq!(self.kind, other.kind, "reservations of one kind");
        self.len_bytes += std::mem::take(&mut other.len_bytes);
    }

    /// Splits `len_bytes` off, or all if it is less.
    #[must_use]
    pub fn split(&mut self, len_bytes: u64) -> Self {
        let len_bytes = len_bytes.min(self.len_bytes);
        self.len_bytes -= len_bytes;
        Self { space: self.space.clone(), kind: self.kind, len_bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Space {
    /// Bytes of tree blocks that inserting `items` items takes at worst: each copies and splits
    /// every level of a tree, which may become one level higher.
    pub fn insertion_bytes(&self, items: u64) -> u64 {
        let levels = u64::from(self.highest_level.load(Relaxed)) + 2;
        u64::from(self.volume.nodesize()) * 2 * levels.min(MAX_LEVELS as u64) * items
    }

    /// Bytes of tree blocks that running delayed references takes at worst, which insert this many
    /// items into the bookkeeping trees. Many insertions take less than as many single ones: each
    /// block is copied once, and each block that was there before splits once.
    fn running_bytes(&self, insertions: u64) -> u64 {
        let all = 2 * self.bookkeeping_bytes.get() + self.insertion_bytes(HIGHER_TREES);
        self.insertion_bytes(insertions).min(all.saturating_add(insertions * GROWTH_BYTES))
    }

    /// Bytes of tree blocks that running `references` delayed references takes at worst.
    pub fn reference_bytes(&self, references: u64) -> u64 {
        self.running_bytes(INSERTIONS_PER_REFERENCE * references)
    }

    /// How many references, at most `most`, a caller can drop or add at once with space for `items`
    /// items besides: fewer if space is short, but at least one.
    pub fn references_at_once(&self, items: u64, most: u64, priority: Priority) -> u64 {
        let usage = self.account(SpaceKind::Metadata).usage();
        let free = (usage.total + usage.unallocated)
            .saturating_sub(usage.spoken_for() + usage.kept_back(priority));
        let free = free.saturating_sub(self.insertion_bytes(items));
        let mut references = most;
        while references > 1 && self.reference_bytes(references) > free {
            references /= 2;
        }
        references
    }

    /// Whether delayed references owe space that is in the global reserve or does not exist.
    pub(crate) fn owes_too_much(&self) -> bool {
        let usage = self.account(SpaceKind::Metadata).usage();
        usage.spoken_for() + usage.reserve_left() > usage.total + usage.unallocated
    }

    /// Notes that a tree has its root at this level.
    pub fn note_level(&self, level: u8) {
        if level > self.highest_level.load(Relaxed) {
            self.highest_level.fetch_max(level, Relaxed);
        }
    }

    /// Reserves `len_bytes` of `kind` if they are free or could be allocated. It frees nothing: the
    /// caller flushes space.
    pub fn try_reserve(
        self: &Arc<Self>,
        kind: SpaceKind,
        len_bytes: u64,
        priority: Priority,
    ) -> Result<Reservation> {
        loop {
            if self.reserve_now(kind, len_bytes, priority) {
                return Ok(Reservation { space: self.clone(), kind, len_bytes });
            }
            // Data is reserved in block groups only, so that each reservation can become an
            // address.
            let seen = self.groups.read().len();
            let may_create = kind == SpaceKind::Data && !self.is_mixed;
            if !may_create || self.create_chunk(kind, seen)?.is_none() {
                return Err(Error::NoSpace { kind, len_bytes });
            }
        }
    }

    fn reserve_now(&self, kind: SpaceKind, len_bytes: u64, priority: Priority) -> bool {
        let account = self.account(kind);
        let mut may_use = account.may_use.lock();
        let mut usage = account.usage_with(*may_use);
        if kind == SpaceKind::Metadata || (kind == SpaceKind::Data && self.is_mixed) {
            // As much as what is allocated by now asks for, which a commit has not seen yet.
            usage.global_reserve = self.wanted_reserve(&usage);
        }
        let needed = usage.spoken_for() + usage.kept_back(priority) + len_bytes;
        let fits = needed <= usage.total + usage.unallocated;
        if fits {
            *may_use += len_bytes;
        }
        fits
    }

    /// Recomputes how much could be allocated for metadata, and how much is kept in reserve.
    pub(super) fn update_reserve(&self) {
        let unallocated = self.obtainable_metadata(&self.devices.lock());
        let account = self.account(SpaceKind::Metadata);
        account.unallocated.set(unallocated);
        account.global_reserve.set(self.wanted_reserve(&account.usage()));
    }

    /// The reserve for metadata, and how much of it there is no space for now, in bytes.
    pub fn global_reserve(&self) -> (u64, u64) {
        let usage = self.account(SpaceKind::Metadata).usage();
        (usage.global_reserve, usage.global_reserve - usage.reserve_left())
    }

    /// The reserve for metadata that is wanted.
    fn wanted_reserve(&self, metadata: &Usage) -> u64 {
        let least = self.insertion_bytes(LEAST_GLOBAL_RESERVE_ITEMS);
        let bookkeeping_bytes = self.bookkeeping_bytes.get();
        let wanted = if self.is_mixed {
            // Most of what is used is data.
            2 * bookkeeping_bytes
        } else {
            ((metadata.used + metadata.reserved) / GLOBAL_RESERVE_SHARE).max(bookkeeping_bytes)
        };
        wanted.clamp(least, MOST_GLOBAL_RESERVE.max(least))
    }

    /// Whether commits may soon find no space for trees unless space is released.
    pub(super) fn is_short_for_commits(&self) -> bool {
        let (metadata, system) = (self.usage(SpaceKind::Metadata), self.usage(SpaceKind::System));
        let chunk_items = 1 + self.volume.devices().len() as u64;
        left(&metadata) < self.wanted_reserve(&metadata) / 2
            || left(&system) < 2 * self.insertion_bytes(chunk_items)
    }

    /// Bytes of new metadata chunks if all the rest of the devices went to them.
    pub(super) fn obtainable_metadata(&self, devices: &Devices) -> u64 {
        self.future(devices.clone()).add_all(SpaceKind::Metadata)
    }

    /// Whether these devices still have space for all reservations of metadata, and for the needs
    /// of the next mount.
    pub(super) fn keeps_reservations(&self, devices: &Devices) -> bool {
        let usage = self.usage(SpaceKind::Metadata);
        let needed = usage.spoken_for() + usage.global_reserve + self.headroom(devices);
        needed <= usage.total + self.obtainable_metadata(devices)
    }

    /// How much metadata is kept for the next mount, in bytes.
    pub(super) fn headroom(&self, devices: &Devices) -> u64 {
        let devices_bytes: u64 = devices.usable().map(|device| device.total_bytes).sum();
        let item_bytes = u64::from(self.volume.nodesize()) * 2 * MAX_LEVELS as u64;
        (item_bytes * HEADROOM_ITEMS).min(devices_bytes / HEADROOM_SHARE)
    }
}

impl Payer for Space {
    fn owe(&self, insertions: u64) {
        let needed = self.running_bytes(insertions);
        let mut may_use = self.account(SpaceKind::Metadata).may_use.lock();
        // Set with the account locked.
        let before = self.owed_bytes.get();
        self.owed_bytes.set(needed);
        *may_use = *may_use - before + needed;
    }
}

impl Usage {
    /// The part of the global reserve that is kept back from a caller.
    fn kept_back(&self, priority: Priority) -> u64 {
        let sixteenths = match priority {
            Priority::Normal => 16,
            Priority::Cutting => 13,
            Priority::Deleting => 10,
            Priority::Freeing => 7,
            Priority::Cleaning => 5,
        };
        self.global_reserve / 16 * sixteenths
    }

    /// The part of the global reserve that there is space for.
    fn reserve_left(&self) -> u64 {
        self.global_reserve.min(left(self))
    }
}

/// Space that is not taken. Reservations are given back, so they do not count.
fn left(usage: &Usage) -> u64 {
    (usage.total + usage.unallocated).saturating_sub(usage.taken())
}
