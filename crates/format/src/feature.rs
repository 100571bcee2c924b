//! Feature flags of the superblock: which a reader must know, and which a writer must.

use bitflags::Flags;

use crate::superblock::Superblock;

bitflags::bitflags! {
    /// Features without which the format cannot be read (`BTRFS_FEATURE_INCOMPAT_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct IncompatFlags: u64 {
        /// Back references of several kinds; every file system since 2009.
        const MIXED_BACKREF = 1;
        /// The default subvolume was set.
        const DEFAULT_SUBVOL = 1 << 1;
        /// Data and metadata share block groups.
        const MIXED_GROUPS = 1 << 2;
        /// LZO was used.
        const COMPRESS_LZO = 1 << 3;
        /// Zstandard was used.
        const COMPRESS_ZSTD = 1 << 4;
        /// Tree blocks may be larger than a page.
        const BIG_METADATA = 1 << 5;
        /// References past the inode reference item's room.
        const EXTENDED_IREF = 1 << 6;
        /// RAID5 or RAID6 is used.
        const RAID56 = 1 << 7;
        /// Tree blocks' extents have `METADATA_ITEM` keys.
        const SKINNY_METADATA = 1 << 8;
        /// Holes have no file extent items.
        const NO_HOLES = 1 << 9;
        /// Tree blocks carry another uuid than the file system's.
        const METADATA_UUID = 1 << 10;
        /// Three or four copies are used.
        const RAID1C34 = 1 << 11;
        /// Zoned devices.
        const ZONED = 1 << 12;
        /// Extent tree v2 (experimental).
        const EXTENT_TREE_V2 = 1 << 13;
        /// Raid stripe tree.
        const RAID_STRIPE_TREE = 1 << 14;
        /// Simple quotas.
        const SIMPLE_QUOTA = 1 << 16;

        const _ = !0;
    }

    /// Features without which the format cannot be written (`BTRFS_FEATURE_COMPAT_RO_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CompatRoFlags: u64 {
        /// There is a free space tree.
        const FREE_SPACE_TREE = 1;
        /// The free space tree is valid.
        const FREE_SPACE_TREE_VALID = 1 << 1;
        /// Files with fs-verity.
        const VERITY = 1 << 2;
        /// Block groups lie in a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 3;

        const _ = !0;
    }
}

impl IncompatFlags {
    /// The features that Larder reads.
    pub const SUPPORTED: Self = Self::MIXED_BACKREF
        .union(Self::DEFAULT_SUBVOL)
        .union(Self::MIXED_GROUPS)
        .union(Self::COMPRESS_LZO)
        .union(Self::COMPRESS_ZSTD)
        .union(Self::BIG_METADATA)
        .union(Self::EXTENDED_IREF)
        .union(Self::RAID56)
        .union(Self::SKINNY_METADATA)
        .union(Self::NO_HOLES)
        .union(Self::METADATA_UUID)
        .union(Self::RAID1C34)
        .union(Self::RAID_STRIPE_TREE)
        .union(Self::SIMPLE_QUOTA);
}

impl CompatRoFlags {
    /// The features that Larder writes.
    pub const SUPPORTED: Self =
        Self::FREE_SPACE_TREE.union(Self::FREE_SPACE_TREE_VALID).union(Self::BLOCK_GROUP_TREE);
}

/// Why a file system cannot be opened as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// It has features without which it cannot be read.
    #[error("unsupported incompatible features: {0}")]
    Incompatible(String),
    /// It has features without which it cannot be written.
    #[error("unsupported read-only compatible features: {0}; it can be opened for reading only")]
    ReadOnly(String),
}

/// Whether a file system with `superblock` can be read.
pub fn check_readable(superblock: &Superblock) -> Result<(), FeatureError> {
    let unknown = superblock.incompat_flags().difference(IncompatFlags::SUPPORTED);
    if unknown.is_empty() { Ok(()) } else { Err(FeatureError::Incompatible(names(unknown))) }
}

/// Whether a file system with `superblock` can be written.
pub fn check_writable(superblock: &Superblock) -> Result<(), FeatureError> {
    check_readable(superblock)?;
    let unknown = superblock.compat_ro_flags().difference(CompatRoFlags::SUPPORTED);
    if unknown.is_empty() { Ok(()) } else { Err(FeatureError::ReadOnly(names(unknown))) }
}

/// The names of the flags that are set, unknown ones as `bit N`.
fn names<F: Flags<Bits = u64> + Copy>(flags: F) -> String {
    let bits = flags.bits();
    let name_of = |bit: u64| {
        F::FLAGS
            .iter()
            .find(|flag| !flag.name().is_empty() && flag.value().bits() == bit)
            .map(bitflags::Flag::name)
    };
    (0..u64::BITS)
        .filter(|shift| bits & (1 << shift) != 0)
        .map(|shift| name_of(1 << shift).map_or_else(|| format!("bit {shift}"), str::to_owned))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_features_are_named() {
        let flags = IncompatFlags::ZONED | IncompatFlags::from_bits_retain(1 << 40);
        assert_eq!(names(flags), "ZONED, bit 40");
    }
}
