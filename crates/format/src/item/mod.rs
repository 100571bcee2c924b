//! The data of items, one file for each family.

mod balance;
mod balance_text;
mod block_group;
mod chunk;
mod csum;
mod dev;
mod dir;
mod extent;
mod file_extent;
mod free_space;
mod inode;
mod log;
mod quota;
mod raid_stripe;
mod root;
mod uuid_tree;
mod verity;

pub use balance::{BALANCE_SINGLE, balance_filter};
pub use balance_text::FilterError;
pub use block_group::BlockGroupItem;
pub use chunk::{Chunk, ChunkHeader, Stripe};
pub use csum::csum_count;
pub use dev::{
    BalanceItem, DevExtent, DevItem, DevReplaceItem, DevStatsItem, DiskBalanceArgs, balance_flags,
    replace_state,
};
pub use dir::{DirEntries, DirEntry, DirItemHeader, FileType, NAME_MAX, XATTR_NAME_MAX};
pub use extent::{
    BackRef, BackRefs, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK, Extent,
    ExtentDataRef, ExtentItem, ExtentOwnerRef, InlineBackRef, SharedDataRef, TreeBlockInfo,
};
pub use file_extent::{
    FILE_EXTENT_INLINE_HEADER_SIZE, FileExtent, FileExtentHeader, FileExtentItem, FileExtentKind,
    MAX_COMPRESSED_EXTENT_BYTES, MAX_EXTENT_BYTES, RegularExtent,
};
pub use free_space::{
    FREE_SPACE_BITMAP_BITS, FREE_SPACE_BITMAP_BYTES, FREE_SPACE_V1_BITMAP, FREE_SPACE_V1_EXTENT,
    FreeSpaceEntry, FreeSpaceHeader, FreeSpaceInfo, USING_BITMAPS,
};
pub use inode::{
    INODE_ROOT_ITEM_INIT, InodeExtref, InodeExtrefHeader, InodeExtrefs, InodeFlags, InodeItem,
    InodeRef, InodeRefHeader, InodeRefs, Timespec,
};
pub use log::DirLogItem;
pub use quota::{
    QGROUP_LEVEL_SHIFT, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_limit_flags,
    qgroup_status_flags,
};
pub use raid_stripe::RaidStride;
pub use root::{
    ROOT_ITEM_V0_SIZE, ROOT_SUBVOL_DEAD, ROOT_SUBVOL_RDONLY, RootItem, RootRef, RootRefHeader,
};
pub use uuid_tree::{uuid_items, uuid_key};
pub use verity::VerityDescriptorItem;
