//! Space: devices, chunks, block groups and their free space.

mod allocation;
mod block_groups;
mod chunk_tree;
mod device_tree;
mod free_ranges;
mod free_space_tree;
mod space_cache;
mod stripe_tree;

pub(crate) use allocation::{
    check_block_groups, check_device_extents, check_extents, check_superblock_ranges, check_used,
};
pub(crate) use block_groups::{BlockGroup, BlockGroups};
pub(crate) use chunk_tree::ChunkTree;
pub(crate) use device_tree::{DeviceExtent, read as read_device_tree};
pub(crate) use free_space_tree::{Space, check as check_free_space_tree};
pub(crate) use space_cache::check as check_space_cache;
pub(crate) use stripe_tree::check as check_stripe_tree;
