//! Block groups by purpose and profile.

use std::collections::BTreeMap;

use larder_format::{BlockGroupFlags, Profile};
use larder_volume::Chunk;

/// The purpose of block groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceKind {
    /// Data of files.
    Data,
    /// The chunk tree.
    System,
    /// All other trees.
    Metadata,
    /// Data and trees, in block groups that hold both.
    DataAndMetadata,
}

/// The block groups of one purpose and profile together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Their purpose.
    pub kind: SpaceKind,
    /// Their profile; `None` for an invalid combination.
    pub profile: Option<Profile>,
    /// Bytes of data that they can hold.
    pub total_bytes: u64,
    /// Bytes that extents use of that.
    pub used_bytes: u64,
    /// Bytes that they take on all devices together.
    pub raw_bytes: u64,
    /// Bytes that they take on each device, by the device's id.
    pub device_bytes: BTreeMap<u64, u64>,
    /// The same, apart for chunks with different numbers of stripes, which are the second part of
    /// the key.
    pub stripe_bytes: BTreeMap<(u64, usize), u64>,
}

/// Block groups that have fewer copies than the safest of their purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incomplete {
    /// Their purpose.
    pub kind: SpaceKind,
    /// Their profile.
    pub profile: Profile,
    /// That of the safest.
    pub wanted: Profile,
    /// Bytes that extents use of them.
    pub used_bytes: u64,
}

impl Space {
    /// Those of `spaces` that have fewer copies than they should: they were made while devices were
    /// missing, or a conversion was interrupted.
    pub fn incomplete(spaces: &[Self]) -> Vec<Incomplete> {
        let safety = |profile: &Profile| (profile.shape().tolerated_losses(), profile.copies());
        let incomplete = |space: &Self| {
            let alike = spaces.iter().filter(|other| other.kind == space.kind);
            let wanted = alike.filter_map(|other| other.profile).max_by_key(safety)?;
            let profile = space.profile.filter(|own| safety(own) < safety(&wanted))?;
            let (kind, used_bytes) = (space.kind, space.used_bytes);
            Some(Incomplete { kind, profile, wanted, used_bytes })
        };
        spaces.iter().filter_map(incomplete).collect()
    }
}

/// Block groups added up by purpose and profile.
#[derive(Default)]
pub struct Spaces {
    spaces: BTreeMap<(SpaceKind, u64), Space>,
}

impl Spaces {
    /// Adds block groups of one purpose and profile, in bytes.
    pub fn add(&mut self, flags: BlockGroupFlags, total_bytes: u64, used_bytes: u64) {
        let space = self.of(flags);
        space.total_bytes = space.total_bytes.saturating_add(total_bytes);
        space.used_bytes = space.used_bytes.saturating_add(used_bytes);
    }

    /// Adds what a chunk takes on devices.
    pub fn add_chunk(&mut self, chunk: &Chunk) {
        let space = self.of(chunk.flags());
        let count = chunk.stripes().len();
        for stripe in chunk.stripes() {
            let on_device = space.device_bytes.entry(stripe.devid).or_default();
            let alike = space.stripe_bytes.entry((stripe.devid, count)).or_default();
            for bytes in [on_device, alike] {
                *bytes = bytes.saturating_add(chunk.bytes_per_stripe());
            }
            space.raw_bytes = space.raw_bytes.saturating_add(chunk.bytes_per_stripe());
        }
    }

    /// Data first, then system and metadata, each in the order of the profiles' numbers.
    pub fn in_order(self) -> Vec<Space> {
        self.spaces.into_values().collect()
    }

    fn of(&mut self, flags: BlockGroupFlags) -> &mut Space {
        let kind = SpaceKind::of(flags);
        let profile = flags & BlockGroupFlags::PROFILES;
        self.spaces.entry((kind, profile.bits())).or_insert(Space {
            kind,
            profile: flags.profile(),
            total_bytes: 0,
            used_bytes: 0,
            raw_bytes: 0,
            device_bytes: BTreeMap::new(),
            stripe_bytes: BTreeMap::new(),
        })
    }
}

impl Space {
    /// The flags of these block groups (`BTRFS_BLOCK_GROUP_*`); none for an invalid combination of
    /// profiles.
    pub fn flags(&self) -> u64 {
        let kind = match self.kind {
            SpaceKind::Data => BlockGroupFlags::DATA,
            SpaceKind::System => BlockGroupFlags::SYSTEM,
            SpaceKind::Metadata => BlockGroupFlags::METADATA,
            SpaceKind::DataAndMetadata => BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
        };
        let profile = self.profile.map_or(BlockGroupFlags::empty(), Profile::flags);
        (kind | profile).bits()
    }
}

impl SpaceKind {
    #[doc(hidden)]
    pub fn of(flags: BlockGroupFlags) -> Self {
        let is_data = flags.contains(BlockGroupFlags::DATA);
        let is_metadata = flags.contains(BlockGroupFlags::METADATA);
        match (is_data, is_metadata) {
            (true, true) => Self::DataAndMetadata,
            (true, false) => Self::Data,
            _ if flags.contains(BlockGroupFlags::SYSTEM) => Self::System,
            _ => Self::Metadata,
        }
    }
}
