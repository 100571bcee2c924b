//! Which profile new chunks get.
//!
//! # Invariants
//! - Unless a target is set, data and trees are never less safe in a new chunk than in the safest
//!   that exists and can be written.

use std::sync::Arc;

use larder_format::{Profile, SpaceKind};

use super::Group;

/// The profiles of new chunks, by kind.
#[derive(Debug)]
pub(super) struct ProfilePolicy {
    /// What a conversion aims at.
    targets: [Option<Profile>; SpaceKind::ALL.len()],
    /// The safest that exist.
    safest: [Profile; SpaceKind::ALL.len()],
}

impl Default for ProfilePolicy {
    fn default() -> Self {
        Self {
            targets: [None; SpaceKind::ALL.len()],
            safest: [Profile::Single; SpaceKind::ALL.len()],
        }
    }
}

impl ProfilePolicy {
    /// The profile of new chunks for `kind`.
    pub(super) fn profile(&self, kind: SpaceKind) -> Profile {
        self.targets[kind as usize].unwrap_or(self.safest[kind as usize])
    }

    /// Sets the profile that new chunks for `kind` get whatever exists; `None`: the safest.
    pub(super) fn set_target(&mut self, kind: SpaceKind, target: Option<Profile>) {
        self.targets[kind as usize] = target;
    }

    /// Looks at the groups that exist now.
    pub(super) fn update(&mut self, groups: &[Arc<Group>]) {
        self.safest = SpaceKind::ALL.map(|kind| {
            let writable =
                groups.iter().filter(|group| group.holds(kind) && group.state().is_in_use());
            let profiles = writable.map(|group| group.chunk().profile());
            profiles.max_by_key(|profile| safety(*profile)).unwrap_or(Profile::Single)
        });
    }
}

/// Profiles from the least to the most preferred if block groups of several exist.
fn safety(profile: Profile) -> u8 {
    match profile {
        Profile::Single => 0,
        Profile::Raid0 => 1,
        Profile::Dup => 2,
        Profile::Raid1 => 3,
        Profile::Raid10 => 4,
        Profile::Raid1c3 => 5,
        Profile::Raid1c4 => 6,
        Profile::Raid5 => 7,
        Profile::Raid6 => 8,
    }
}
