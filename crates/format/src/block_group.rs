//! The types and profiles of block groups and chunks.

use crate::profile::Profile;

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
