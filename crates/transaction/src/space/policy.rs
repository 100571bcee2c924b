//! Which profile new chunks get, and where.
//!
//! # Invariants
//! - Unless a target is set, data and trees are never less safe in a new chunk than in the safest
//!   that exists and can be written; while devices are missing, than the others allow.
//! - Only while devices are missing does a new chunk have fewer copies than the safest. Afterwards
//!   such chunks are completed (`manager/devices/complete.rs`).

use std::sync::Arc;

use larder_format::{Profile, SpaceKind};
use larder_volume::layout::Devices;

use super::Group;

/// The profiles of new chunks, by kind.
#[derive(Debug)]
pub(super) struct ProfilePolicy {
    /// What a conversion aims at.
    targets: [Option<Profile>; SpaceKind::ALL.len()],
    /// The safest that exist.
    safest: [Profile; SpaceKind::ALL.len()],
    /// The best that the devices allow, if some are missing.
    possible: [Option<Profile>; SpaceKind::ALL.len()],
    /// Before which end chunks for data lie, of the device with this id.
    data_end: Option<(u64, u64)>,
}

impl Default for ProfilePolicy {
    fn default() -> Self {
        Self {
            targets: [None; SpaceKind::ALL.len()],
            safest: [Profile::Single; SpaceKind::ALL.len()],
            possible: Default::default(),
            data_end: None,
        }
    }
}

impl ProfilePolicy {
    /// The profile of new chunks for `kind`.
    pub(super) fn profile(&self, kind: SpaceKind) -> Profile {
        let wanted = self.targets[kind as usize].or(self.possible[kind as usize]);
        wanted.unwrap_or(self.safest[kind as usize])
    }

    /// The safest profile of block groups for `kind` that exist.
    pub(super) fn safest(&self, kind: SpaceKind) -> Profile {
        self.safest[kind as usize]
    }

    /// Looks at the devices that are there, if some are missing. `has_room` says whether a chunk
    /// fits.
    pub(super) fn look_at_devices(
        &mut self,
        devices: Option<&Devices>,
        has_room: impl Fn(SpaceKind, Profile) -> bool,
    ) {
        self.possible = SpaceKind::ALL.map(|kind| {
            let (safest, present) = (self.safest(kind), devices?.usable().count());
            let best = possible(safest, present)?;
            let is_costly = best == Profile::Dup && safest != best && kind == SpaceKind::Data;
            Some(if is_costly && !has_room(kind, best) { Profile::Single } else { best })
        });
    }

    /// Sets the profile that new chunks for `kind` get whatever exists; `None`: the safest.
    pub(super) fn set_target(&mut self, kind: SpaceKind, target: Option<Profile>) {
        self.targets[kind as usize] = target;
    }

    /// Sets the end of a device before which new chunks for data lie.
    pub(super) fn set_data_end(&mut self, end: Option<(u64, u64)>) {
        self.data_end = end;
    }

    /// The devices as new chunks for `kind` may use them.
    pub(super) fn room(&self, kind: SpaceKind, devices: &Devices) -> Devices {
        let mut room = devices.clone();
        if let Some((devid, end)) = self.data_end.filter(|_| kind == SpaceKind::Data) {
            room.change(devid, |device| device.total_bytes = device.total_bytes.min(end));
        }
        room
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

/// The profile with the most copies, but no more than `wanted` has, that so many devices allow.
fn possible(wanted: Profile, devices: usize) -> Option<Profile> {
    const OTHERS: [Profile; 5] =
        [Profile::Raid1c4, Profile::Raid1c3, Profile::Raid1, Profile::Dup, Profile::Single];
    let others = OTHERS.into_iter().filter(|other| other.copies() <= wanted.copies());
    [wanted].into_iter().chain(others).find(|profile| profile.shape().devices_of(devices) > 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_that_are_there_have_as_many_copies_as_they_can() {
        for (wanted, devices, best) in [
            (Profile::Raid1, 2, Profile::Raid1),
            (Profile::Raid1, 1, Profile::Dup),
            (Profile::Raid1c3, 2, Profile::Raid1),
            (Profile::Raid1c4, 3, Profile::Raid1c3),
            (Profile::Raid10, 1, Profile::Dup),
            (Profile::Raid0, 1, Profile::Raid0),
            (Profile::Single, 1, Profile::Single),
            (Profile::Dup, 1, Profile::Dup),
        ] {
            assert_eq!(possible(wanted, devices), Some(best), "{wanted} on {devices}");
        }
        assert_eq!(possible(Profile::Raid1, 0), None);
    }
}
