//! The types and profiles of block groups and chunks.

use std::fmt;

/// Bytes of a stripe on one device before the next device follows.
pub const STRIPE_LEN_BYTES: u64 = 64 * 1024;

bitflags::bitflags! {
    /// Type and profile of a chunk or block group (`BTRFS_BLOCK_GROUP_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct BlockGroupFlags: u64 {
        /// Holds file data.
        const DATA = 1;
        /// Holds the chunk tree.
        const SYSTEM = 1 << 1;
        /// Holds every other tree.
        const METADATA = 1 << 2;
        /// Striped over all devices.
        const RAID0 = 1 << 3;
        /// Two copies on two devices.
        const RAID1 = 1 << 4;
        /// Two copies on one device.
        const DUP = 1 << 5;
        /// Striped over mirrored pairs.
        const RAID10 = 1 << 6;
        /// Striped with one parity stripe.
        const RAID5 = 1 << 7;
        /// Striped with two parity stripes.
        const RAID6 = 1 << 8;
        /// Three copies on three devices.
        const RAID1C3 = 1 << 9;
        /// Four copies on four devices.
        const RAID1C4 = 1 << 10;

        const _ = !0;
    }
}

impl BlockGroupFlags {
    /// The bits of the type.
    pub const TYPES: Self = Self::DATA.union(Self::SYSTEM).union(Self::METADATA);
    /// The bits of the profile; none of them means [`Profile::Single`].
    pub const PROFILES: Self = Self::RAID0
        .union(Self::RAID1)
        .union(Self::DUP)
        .union(Self::RAID10)
        .union(Self::RAID5)
        .union(Self::RAID6)
        .union(Self::RAID1C3)
        .union(Self::RAID1C4);

    /// The profile, or `None` when several profile bits are set.
    pub fn profile(self) -> Option<Profile> {
        let bits = self & Self::PROFILES;
        Profile::ALL.into_iter().find(|profile| profile.flags() == bits)
    }

    /// The type, as `btrfs filesystem df` names it: `Data`, `System`, `Metadata`, `Data+Metadata`
    /// or `unknown`.
    pub fn type_name(self) -> &'static str {
        let types = self & Self::TYPES;
        if types == Self::DATA {
            "Data"
        } else if types == Self::SYSTEM {
            "System"
        } else if types == Self::METADATA {
            "Metadata"
        } else if types == Self::DATA | Self::METADATA {
            "Data+Metadata"
        } else {
            "unknown"
        }
    }
}

/// The distribution of a chunk's bytes over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// One copy, striped.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Two copies, striped over pairs.
    Raid10,
    /// One copy and one parity, striped.
    Raid5,
    /// One copy and two parities, striped.
    Raid6,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Dup,
        Self::Raid0,
        Self::Raid1,
        Self::Raid1c3,
        Self::Raid1c4,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
    ];

    /// The profile bit.
    pub const fn flags(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags::empty(),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid1c3 => BlockGroupFlags::RAID1C3,
            Self::Raid1c4 => BlockGroupFlags::RAID1C4,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// The name that btrfs-progs uses, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "dup",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid1c3 => "raid1c3",
            Self::Raid1c4 => "raid1c4",
            Self::Raid10 => "raid10",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
        }
    }

    /// Whole copies of every byte.
    pub const fn copies(self) -> u64 {
        match self {
            Self::Single | Self::Raid0 | Self::Raid5 | Self::Raid6 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 => 2,
            Self::Raid1c3 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// Parity stripes in each full stripe.
    pub const fn parities(self) -> u64 {
        match self {
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// The least number of stripes that a chunk of this profile has.
    pub const fn min_stripes(self) -> u16 {
        match self {
            Self::Single | Self::Raid0 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 | Self::Raid5 => 2,
            Self::Raid1c3 | Self::Raid6 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// The number of stripes that hold one copy of a byte range: 2 for RAID10, else 1.
    pub const fn sub_stripes(self) -> u16 {
        match self {
            Self::Raid10 => 2,
            _ => 1,
        }
    }

    /// The number of devices that may be lost without losing data.
    pub const fn tolerated_failures(self) -> usize {
        match self {
            Self::Single | Self::Dup | Self::Raid0 => 0,
            Self::Raid1 | Self::Raid10 | Self::Raid5 => 1,
            Self::Raid1c3 | Self::Raid6 => 2,
            Self::Raid1c4 => 3,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
