//! Block groups whose content moves to others, so that they can be removed.
//!
//! # Invariants
//! - Nothing is allocated in a group that leaves. Its free space counts as unusable, so that no
//!   caller is promised any of it.
//! - A group that leaves is removed by the next commit that finds nothing of it in use, unless it
//!   is the last for its kind.

use std::sync::Arc;

use larder_format::BlockGroupFlags;

use super::withdrawn::Part;
use super::{Group, GroupState, Space, SpaceKind};
use crate::error::{Error, Result};

impl Part for Group {
    fn free_bytes(&self) -> u64 {
        Self::free_bytes(self)
    }
}

impl Space {
    /// Allocates nothing in a group from now on. Returns whether it did before. The caller edits
    /// the bookkeeping trees, so that the group has items.
    pub(crate) fn begin_leaving(&self, group: &Arc<Group>) -> bool {
        let is_begun = group.change_state(GroupState::Open, GroupState::Leaving);
        if is_begun {
            self.account_of(group.flags()).withdrawn.add(group.clone());
            self.update_reserve();
        }
        is_begun
    }

    /// Allocates in a group again that was to leave, if it is still there.
    pub(crate) fn end_leaving(&self, group: &Arc<Group>) {
        if group.change_state(GroupState::Leaving, GroupState::Open) {
            self.stop_withdrawing(group);
            self.update_reserve();
        }
    }

    /// The group is gone, or in use again.
    pub(super) fn stop_withdrawing(&self, group: &Arc<Group>) {
        let part: Arc<dyn Part> = group.clone();
        self.account_of(group.flags()).withdrawn.remove(&part);
    }

    /// Whether there is another group for the same purpose.
    pub(crate) fn has_other_group(&self, group: &Arc<Group>) -> bool {
        let types = |group: &Group| group.flags() & !BlockGroupFlags::PROFILES;
        let others = self.groups().into_iter().filter(|other| !Arc::ptr_eq(other, group));
        others
            .filter(|other| types(other) == types(group))
            .any(|other| matches!(other.state(), GroupState::New | GroupState::Open))
    }

    /// How long another group for the chunk tree would be, in bytes, if those besides `group` have too
    /// little room for all of it.
    pub(crate) fn missing_system_group(&self, group: &Group) -> Option<u64> {
        let kind = SpaceKind::System;
        let usage = self.usage(kind);
        let chunk_items = 1 + self.volume.devices().len() as u64;
        let len_bytes = usage.used + self.insertion_bytes(chunk_items);
        let is_missing = usage.spoken_for() + group.free_bytes() + len_bytes > usage.total;
        is_missing.then(|| self.limits(kind, &self.devices.lock()).chunk_bytes)
    }

    /// Makes a group for the chunk tree.
    pub(crate) fn make_system_group(&self) -> Result<()> {
        let (kind, seen) = (SpaceKind::System, self.groups().len());
        let len_bytes = self.usage(kind).used;
        self.create_chunk(kind, seen)?.ok_or(Error::NoSpace { kind, len_bytes })
    }
}
