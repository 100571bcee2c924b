//! Reserved object ids (`BTRFS_*_OBJECTID`). Several are small negative numbers, read unsigned.

/// The tree of tree roots.
pub const ROOT_TREE: u64 = 1;
/// The extent tree.
pub const EXTENT_TREE: u64 = 2;
/// The chunk tree.
pub const CHUNK_TREE: u64 = 3;
/// The device tree.
pub const DEV_TREE: u64 = 4;
/// The top-level subvolume.
pub const FS_TREE: u64 = 5;
/// In the root tree: the directory that holds the "default" entry.
pub const ROOT_TREE_DIR: u64 = 6;
/// The tree of data checksums.
pub const CSUM_TREE: u64 = 7;
/// The quota tree.
pub const QUOTA_TREE: u64 = 8;
/// The tree of subvolumes by uuid.
pub const UUID_TREE: u64 = 9;
/// The free space tree.
pub const FREE_SPACE_TREE: u64 = 10;
/// The block group tree.
pub const BLOCK_GROUP_TREE: u64 = 11;
/// The raid stripe tree.
pub const RAID_STRIPE_TREE: u64 = 12;

/// In the device tree: device statistics.
pub const DEV_STATS: u64 = 0;
/// State of a balance.
pub const BALANCE: u64 = -4_i64 as u64;
/// Inodes to be deleted, and (as key offset) subvolumes to be deleted.
pub const ORPHAN: u64 = -5_i64 as u64;
/// A log tree: owner of its blocks.
pub const TREE_LOG: u64 = -6_i64 as u64;
/// In the tree of log roots.
pub const TREE_LOG_FIXUP: u64 = -7_i64 as u64;
/// A tree that relocation works on.
pub const TREE_RELOC: u64 = -8_i64 as u64;
/// The inode tree of data relocation.
pub const DATA_RELOC_TREE: u64 = -9_i64 as u64;
/// Objectid of every checksum item.
pub const EXTENT_CSUM: u64 = -10_i64 as u64;
/// In the root tree: v1 space cache items.
pub const FREE_SPACE: u64 = -11_i64 as u64;
/// In the root tree: the inode cache (obsolete).
pub const FREE_INO: u64 = -12_i64 as u64;
/// Stands for several objectids.
pub const MULTIPLE: u64 = -255_i64 as u64;

/// Objectid of every device item in the chunk tree.
pub const DEV_ITEMS: u64 = 1;
/// Objectid of every chunk item in the chunk tree.
pub const FIRST_CHUNK_TREE: u64 = 256;
/// The least inode number, and the root directory of every subvolume.
pub const FIRST_FREE: u64 = 256;
/// The greatest inode number.
pub const LAST_FREE: u64 = -256_i64 as u64;

/// Whether `id` is the id of a subvolume or snapshot.
pub const fn is_subvolume(id: u64) -> bool {
    id == FS_TREE || (id >= FIRST_FREE && id <= LAST_FREE)
}

/// Whether trees of this id hold files: subvolumes, logs, relocation copies and data relocation.
pub const fn is_file_tree(id: u64) -> bool {
    is_subvolume(id) || id == TREE_LOG || id == TREE_RELOC || id == DATA_RELOC_TREE
}
