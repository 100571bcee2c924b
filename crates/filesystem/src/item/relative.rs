//! Snapshots of one subvolume, which differ little.

use larder_format::Uuid;

use crate::item::subvolume_info::SubvolumeInfo;

/// How near two snapshots are to each other.
pub struct Relative {
    /// Its UUID.
    pub uuid: Uuid,
    /// That of the subvolume that it is a snapshot of.
    pub parent_uuid: Uuid,
    /// The transaction that last changed it.
    pub generation: u64,
}

impl Relative {
    pub(crate) fn of(info: &SubvolumeInfo) -> Self {
        let SubvolumeInfo { uuid, parent_uuid, change_generation: generation, .. } = *info;
        Self { uuid, parent_uuid, generation }
    }

    /// The one that probably differs least from this.
    pub fn closest<'a, S>(&self, others: Vec<(Self, &'a S)>) -> Option<&'a S> {
        let is_near = |other: &Self| {
            let is_sibling = !self.parent_uuid.is_nil() && self.parent_uuid == other.parent_uuid;
            is_sibling || self.parent_uuid == other.uuid || self.uuid == other.parent_uuid
        };
        let distance = |other: &Self| {
            let is_later = other.generation > self.generation;
            (is_later, self.generation.abs_diff(other.generation))
        };
        let near = others.into_iter().filter(|(other, _)| is_near(other));
        near.min_by_key(|(other, _)| distance(other)).map(|(_, found)| found)
    }
}
