//! Keys, the order of every tree.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The type of an item: the middle part of its key (`BTRFS_*_KEY`).
///
/// Any byte may appear on disk, so this is a number with names and not an enumeration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemType(pub u8);

macro_rules! item_types {
    ($($(#[$meta:meta])* $name:ident = $value:literal;)*) => {
        impl ItemType {
            $($(#[$meta])* pub const $name: Self = Self($value);)*

            /// The name in `linux/btrfs_tree.h` without `BTRFS_` and `_KEY`, if there is one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

item_types! {
    /// An inode's attributes.
    INODE_ITEM = 1;
    /// Names of an inode in one parent directory.
    INODE_REF = 12;
    /// Names of an inode that did not fit its `INODE_REF`; offset is a hash of parent and name.
    INODE_EXTREF = 13;
    /// An extended attribute; offset is the hash of its name.
    XATTR_ITEM = 24;
    /// Size of a verity descriptor, and the descriptor.
    VERITY_DESC_ITEM = 36;
    /// The Merkle tree of a verity file.
    VERITY_MERKLE_ITEM = 37;
    /// An inode to be deleted; objectid is `ORPHAN`.
    ORPHAN_ITEM = 48;
    /// Log tree: a range of name hashes that the log is authoritative for.
    DIR_LOG_ITEM = 60;
    /// Log tree: a range of directory indexes that the log is authoritative for.
    DIR_LOG_INDEX = 72;
    /// A directory's name, by its hash.
    DIR_ITEM = 84;
    /// A directory's name, by its index.
    DIR_INDEX = 96;
    /// A range of a file.
    EXTENT_DATA = 108;
    /// Checksums of data, by logical address.
    EXTENT_CSUM = 128;
    /// The root of a tree.
    ROOT_ITEM = 132;
    /// From a subvolume to the directory that names it.
    ROOT_BACKREF = 144;
    /// From a directory's subvolume to the subvolume that it names.
    ROOT_REF = 156;
    /// An extent; offset is its length in bytes.
    EXTENT_ITEM = 168;
    /// A tree block's extent; offset is its level.
    METADATA_ITEM = 169;
    /// The first owner of a data extent, for simple quotas (inline only).
    EXTENT_OWNER_REF = 172;
    /// A reference from a tree by its id.
    TREE_BLOCK_REF = 176;
    /// A reference from a file of a tree.
    EXTENT_DATA_REF = 178;
    /// A reference from a tree block by its address.
    SHARED_BLOCK_REF = 182;
    /// References from the file extents in a leaf by its address.
    SHARED_DATA_REF = 184;
    /// A block group.
    BLOCK_GROUP_ITEM = 192;
    /// Free space tree: the form of a block group's free space.
    FREE_SPACE_INFO = 198;
    /// Free space tree: a free range.
    FREE_SPACE_EXTENT = 199;
    /// Free space tree: a bitmap of free sectors.
    FREE_SPACE_BITMAP = 200;
    /// A range of a device that belongs to a chunk.
    DEV_EXTENT = 204;
    /// A device.
    DEV_ITEM = 216;
    /// A chunk.
    CHUNK_ITEM = 228;
    /// The places of a data extent's parts (raid stripe tree).
    RAID_STRIPE = 230;
    /// State of the quota tree.
    QGROUP_STATUS = 240;
    /// A quota group's counts.
    QGROUP_INFO = 242;
    /// A quota group's limits.
    QGROUP_LIMIT = 244;
    /// Membership of a quota group in another.
    QGROUP_RELATION = 246;
    /// Temporary state, used only for `BALANCE_ITEM`.
    TEMPORARY_ITEM = 248;
    /// Permanent state, used only for device statistics.
    PERSISTENT_ITEM = 249;
    /// State of a device replacement.
    DEV_REPLACE = 250;
    /// UUID tree: subvolumes by uuid.
    UUID_KEY_SUBVOL = 251;
    /// UUID tree: subvolumes by received uuid.
    UUID_KEY_RECEIVED_SUBVOL = 252;
    /// For debugging.
    STRING_ITEM = 253;
}

impl fmt::Debug for ItemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ItemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN.{}", self.0),
        }
    }
}

/// A key in memory. Keys compare by objectid, then type, then offset, all unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The owner of the item: an inode, a tree, an address, …
    pub objectid: u64,
    /// The type of the item.
    pub item_type: ItemType,
    /// Depends on the type: an offset, an id, a hash, …
    pub offset: u64,
}

impl Key {
    /// The smallest key.
    pub const MIN: Self = Self::new(0, ItemType(0), 0);
    /// The greatest key.
    pub const MAX: Self = Self::new(u64::MAX, ItemType(u8::MAX), u64::MAX);

    /// A key of these three parts.
    pub const fn new(objectid: u64, item_type: ItemType, offset: u64) -> Self {
        Self { objectid, item_type, offset }
    }

    /// The least key greater than this one, or `None` for [`Key::MAX`].
    pub fn successor(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(item_type) = self.item_type.0.checked_add(1) {
            return Some(Self::new(self.objectid, ItemType(item_type), 0));
        }
        self.objectid.checked_add(1).map(|objectid| Self::new(objectid, ItemType(0), 0))
    }

    /// The greatest key less than this one, or `None` for [`Key::MIN`].
    pub fn predecessor(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_sub(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(item_type) = self.item_type.0.checked_sub(1) {
            return Some(Self::new(self.objectid, ItemType(item_type), u64::MAX));
        }
        self.objectid
            .checked_sub(1)
            .map(|objectid| Self::new(objectid, ItemType(u8::MAX), u64::MAX))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, self.item_type, self.offset)
    }
}

/// A key on disk (`struct btrfs_disk_key`, 17 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiskKey {
    /// See [`Key::objectid`].
    pub objectid: U64,
    /// See [`Key::item_type`].
    pub item_type: u8,
    /// See [`Key::offset`].
    pub offset: U64,
}

const _: () = assert!(size_of::<DiskKey>() == 17);

impl DiskKey {
    /// The key in memory.
    pub fn get(&self) -> Key {
        Key::new(self.objectid.get(), ItemType(self.item_type), self.offset.get())
    }
}

impl From<Key> for DiskKey {
    fn from(key: Key) -> Self {
        Self {
            objectid: key.objectid.into(),
            item_type: key.item_type.0,
            offset: key.offset.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_unsigned_in_order_of_their_parts() {
        let small = Key::new(5, ItemType::INODE_ITEM, u64::MAX);
        let orphan = Key::new(crate::objectid::ORPHAN, ItemType::ORPHAN_ITEM, 257);
        assert!(small < orphan);
        assert!(Key::new(5, ItemType::DIR_ITEM, 0) < Key::new(5, ItemType::DIR_INDEX, 0));
    }

    #[test]
    fn successor_and_predecessor_carry_between_parts() {
        let key = Key::new(256, ItemType(255), u64::MAX);
        assert_eq!(key.successor(), Some(Key::new(257, ItemType(0), 0)));
        assert_eq!(key.successor().and_then(Key::predecessor), Some(key));
        assert_eq!(Key::MAX.successor(), None);
        assert_eq!(Key::MIN.predecessor(), None);
    }
}
