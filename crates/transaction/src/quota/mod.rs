//! Quota groups: what subvolumes refer to is counted and kept within limits.
//!
//! # Invariants
//! - A reservation never makes a group exceed a limit: its count and its reservations together stay
//!   within the limit, and so it is with all groups above it.
//! - A change in a subvolume's group changes all groups above it.
//! - Something is counted before the reservation for it is given back, so that it is never in
//!   neither.
//!
//! The count of a subvolume begins with the items on disk, and goes on from there:
//! - *Tree blocks* exactly: the blocks of the subvolume's tree, whether other trees share them or
//!   not.
//! - *Data* exactly, as long as each extent is referred to by references with the subvolume's id:
//!   an extent counts with all its bytes on disk from the first reference to the last, however much
//!   of it files still use. It is an estimate if a subvolume refers to one extent from several
//!   leaves that it shares with snapshots, and for an extent with more references than fit into its
//!   item.
//! - *Exclusive bytes* lag: when another subvolume begins to share an extent or a tree block by a
//!   reflink, or becomes the last to have it, only the subvolume that acted is counted anew. A
//!   snapshot leaves the source and itself with a root block each, as in the kernel.
//! - *Groups above* add up the counts of their members; what members share counts more than once
//!   there.
//!
//! The counts are written with each commit, and marked as inconsistent, so that the kernel counts
//! again.

mod items;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use larder_format::item::{QGROUP_LEVEL_SHIFT, QgroupLimitItem, qgroup_limit_flags};
use larder_format::objectid::is_subvolume;
use larder_locks::RankedMutex;
use larder_locks::rank::QUOTAS;
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use crate::error::{Error, Result};

/// The quota groups of a file system that has quotas on. Those of subvolumes have their ids; the
/// level of others is in the top 16 bits.
#[derive(Debug)]
pub struct Quotas {
    nodesize: u64,
    groups: RankedMutex<BTreeMap<u64, Group>, QUOTAS>,
}

/// The counters of a group, in bytes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that its subvolumes refer to.
    pub referenced_bytes: u64,
    /// Bytes that nothing else refers to.
    pub exclusive_bytes: u64,
}

#[derive(Debug)]
struct Group {
    counted: Counted,
    /// Reserved, and not counted yet.
    reserved_bytes: u64,
    limit: QgroupLimitItem,
    /// The groups that it is in, and those that they are in.
    above: BTreeSet<u64>,
    /// Its counters differ from its item.
    is_changed: bool,
}

/// A limit, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimit {
    /// The group that has it.
    pub group: u64,
    /// The limit in bytes.
    pub max_bytes: u64,
    /// It is a limit of exclusive bytes.
    pub is_exclusive: bool,
}

impl Quotas {
    /// The current counters of a group; `None` if there is no such group.
    pub fn counted(&self, group: u64) -> Option<Counted> {
        self.groups.lock().get(&group).map(|group| group.counted)
    }

    /// Reserves `len_bytes` that a subvolume may come to refer to. A subvolume without a group has
    /// no limit.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] if its group, or one above it, would exceed a limit.
    pub fn reserve(self: &Arc<Self>, subvolume: u64, len_bytes: u64) -> Result<QuotaReservation> {
        let mut groups = self.groups.lock();
        let passed = concerned(&groups, subvolume)
            .find_map(|id| groups.get(&id).and_then(|group| group.passed_with(id, len_bytes)));
        if let Some(limit) = passed {
            return Err(Error::QuotaExceeded { subvolume, limit });
        }
        change_reserved(&mut groups, subvolume, |bytes| bytes.saturating_add(len_bytes));
        Ok(QuotaReservation { quotas: self.clone(), subvolume, len_bytes })
    }

    /// Whether anything is counted for a tree.
    pub(crate) fn has(&self, tree: u64) -> bool {
        is_subvolume(tree) && self.groups.lock().contains_key(&tree)
    }

    /// Notes that a subvolume refers to so many bytes more, or fewer, and to so many exclusive
    /// bytes.
    pub(crate) fn change(&self, subvolume: u64, referenced_bytes: i64, exclusive_bytes: i64) {
        let mut groups = self.groups.lock();
        for id in concerned(&groups, subvolume).collect::<Vec<_>>() {
            let Some(group) = groups.get_mut(&id) else { continue };
            let Counted { referenced_bytes: referenced, exclusive_bytes: exclusive } =
                &mut group.counted;
            *referenced = referenced.saturating_add_signed(referenced_bytes);
            *exclusive = exclusive.saturating_add_signed(exclusive_bytes);
            group.is_changed = true;
        }
    }

    /// Notes that a tree has a block more.
    pub(crate) fn block_added(&self, tree: u64) {
        if is_subvolume(tree) {
            self.change(tree, self.nodesize as i64, self.nodesize as i64);
        }
    }

    /// Notes that a tree has a block less, which others may still have.
    pub(crate) fn block_dropped(&self, tree: u64, is_shared: bool) {
        if is_subvolume(tree) {
            let exclusive_bytes = if is_shared { 0 } else { self.nodesize as i64 };
            self.change(tree, -(self.nodesize as i64), -exclusive_bytes);
        }
    }

    /// Begins to count a new subvolume, which has one tree block.
    pub(crate) fn create(&self, subvolume: u64) {
        self.groups.lock().entry(subvolume).or_default();
        self.block_added(subvolume);
    }

    /// Begins to count a snapshot, which refers to the same data as its source, within the same
    /// limits.
    pub(crate) fn snapshot(&self, source: u64, id: u64) {
        let mut groups = self.groups.lock();
        let of_source = groups.get(&source).map(|group| (group.counted, group.limit));
        let (source_counted, limit) =
            of_source.unwrap_or_else(|| (Counted::default(), QgroupLimitItem::new_zeroed()));
        groups.entry(id).or_insert_with(|| Group { limit, ..Group::default() });
        drop(groups);
        let nodesize = self.nodesize as i64;
        self.change(id, signed(source_counted.referenced_bytes), nodesize);
        self.change(source, 0, nodesize - signed(source_counted.exclusive_bytes));
    }

    /// Notes that a subvolume is gone.
    pub(crate) fn dropped(&self, subvolume: u64) {
        let counted = self.counted(subvolume).unwrap_or_default();
        let (referenced, exclusive) = (counted.referenced_bytes, counted.exclusive_bytes);
        self.change(subvolume, -signed(referenced), -signed(exclusive));
    }
}

impl Default for Group {
    fn default() -> Self {
        Self {
            counted: Counted::default(),
            reserved_bytes: 0,
            limit: QgroupLimitItem::new_zeroed(),
            above: BTreeSet::new(),
            is_changed: false,
        }
    }
}

impl Group {
    /// The limit that it would exceed with so many bytes more.
    fn passed_with(&self, group: u64, len_bytes: u64) -> Option<QuotaLimit> {
        let more = self.reserved_bytes.saturating_add(len_bytes);
        let Counted { referenced_bytes, exclusive_bytes } = self.counted;
        let QgroupLimitItem { flags, max_rfer, max_excl, .. } = self.limit;
        let set = |flag, bytes: U64| (flags.get() & flag != 0).then_some(bytes.get());
        let limits = [
            (set(qgroup_limit_flags::MAX_RFER, max_rfer), referenced_bytes, false),
            (set(qgroup_limit_flags::MAX_EXCL, max_excl), exclusive_bytes, true),
        ];
        limits.into_iter().find_map(|(max_bytes, counted_bytes, is_exclusive)| {
            let max_bytes = max_bytes.filter(|max| counted_bytes.saturating_add(more) > *max)?;
            Some(QuotaLimit { group, max_bytes, is_exclusive })
        })
    }
}

impl fmt::Display for QuotaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, id) = (self.group >> QGROUP_LEVEL_SHIFT, self.group << 16 >> 16);
        let what = if self.is_exclusive { "unshared bytes" } else { "bytes" };
        write!(f, "{} {what} of quota group {level}/{id}", self.max_bytes)
    }
}

/// A reservation within limits, given back when dropped.
#[derive(Debug)]
pub struct QuotaReservation {
    quotas: Arc<Quotas>,
    subvolume: u64,
    len_bytes: u64,
}

impl QuotaReservation {
    /// Gives all except `len_bytes` back.
    pub fn shrink_to(&mut self, len_bytes: u64) {
        let excess_bytes = self.len_bytes.saturating_sub(len_bytes);
        if excess_bytes > 0 {
            let mut groups = self.quotas.groups.lock();
            change_reserved(&mut groups, self.subvolume, |bytes| {
                bytes.saturating_sub(excess_bytes)
            });
            self.len_bytes -= excess_bytes;
        }
    }

    /// Adds another reservation of the same subvolume.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert_eq!(self.subvolume, other.subvolume);
        self.len_bytes += std::mem::take(&mut other.len_bytes);
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// A subvolume's group and those above it.
fn concerned(groups: &BTreeMap<u64, Group>, subvolume: u64) -> impl Iterator<Item = u64> + '_ {
    let own = groups.get(&subvolume);
    own.into_iter().flat_map(move |own| [subvolume].into_iter().chain(own.above.iter().copied()))
}

fn change_reserved(groups: &mut BTreeMap<u64, Group>, subvolume: u64, change: impl Fn(u64) -> u64) {
    for id in concerned(groups, subvolume).collect::<Vec<_>>() {
        if let Some(group) = groups.get_mut(&id) {
            group.reserved_bytes = change(group.reserved_bytes);
        }
    }
}

/// A count in an image, which may be anything.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
