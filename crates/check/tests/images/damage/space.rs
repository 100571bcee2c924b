//! Chunks, devices, block groups, free space.

use larder_check::Kind;
use larder_format::item::{
    BlockGroupItem, ChunkHeader, DevExtent, DevItem, FreeSpaceHeader, FreeSpaceInfo,
};
use larder_format::objectid::{
    CHUNK_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE, FREE_SPACE_TREE, ROOT_TREE,
};
use larder_format::{ItemType, Key};

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::{Found, Patient};

/// The last item of a type.
fn last(patient: &Patient, tree: u64, item_type: ItemType) -> Found {
    let mut items = patient.items(tree).into_iter().rev();
    items.find(|item| item.key.item_type == item_type).expect("the image has such an item")
}

/// The file extent of a v1 space cache.
fn cache_extent(patient: &Patient) -> u64 {
    let extent = patient.find(ROOT_TREE, |key, _| key.item_type == ItemType::EXTENT_DATA);
    u64::from_le_bytes(extent.data[21..29].try_into().expect("eight bytes"))
}

pub(super) fn wounds() -> Vec<Wound> {
    let mut wounds = chunks();
    wounds.extend(block_groups());
    wounds.extend(free_space());
    wounds
}

fn chunks() -> Vec<Wound> {
    vec![
        plain("the owner of a chunk", Kind::Chunk, DoesNot, |patient| {
            let chunk = patient.find_type(CHUNK_TREE, ItemType::CHUNK_ITEM);
            patient.edit_as::<ChunkHeader>(&chunk, |item| item.owner = 5.into());
        }),
        plain("the sector size of a chunk", Kind::Chunk, Sees, |patient| {
            let chunk = patient.find_type(CHUNK_TREE, ItemType::CHUNK_ITEM);
            patient.edit_as::<ChunkHeader>(&chunk, |item| item.sector_size = 512.into());
        }),
        plain("a device extent is gone", Kind::ChunkWithoutDeviceExtent, Sees, |patient| {
            patient.remove(&last(patient, DEV_TREE, ItemType::DEV_EXTENT));
        }),
        plain("a device extent for no chunk", Kind::DeviceExtentWithoutChunk, DoesNot, |patient| {
            let extent = last(patient, DEV_TREE, ItemType::DEV_EXTENT);
            patient.edit_as::<DevExtent>(&extent, |item| item.chunk_offset += 1 << 30);
        }),
        plain("two device extents overlap", Kind::DeviceExtentOverlap, Sees, |patient| {
            let extent = patient.find_type(DEV_TREE, ItemType::DEV_EXTENT);
            patient.edit_as::<DevExtent>(&extent, |item| item.length += 1 << 20);
        }),
        plain("a device extent outside of its device", Kind::DeviceExtentRange, Sees, |patient| {
            let extent = last(patient, DEV_TREE, ItemType::DEV_EXTENT);
            patient.edit_as::<DevExtent>(&extent, |item| item.length += 1 << 30);
        }),
        plain("the file system of a device", Kind::DeviceItem, Sees, |patient| {
            let device = patient.find(CHUNK_TREE, |key, _| key.item_type == ItemType::DEV_ITEM);
            patient.edit_as::<DevItem>(&device, |item| item.fsid[0] ^= 1);
        }),
        plain("bytes_used of a device", Kind::DeviceBytesUsed, Sees, |patient| {
            let device = patient.find(CHUNK_TREE, |key, _| key.item_type == ItemType::DEV_ITEM);
            patient.edit_as::<DevItem>(&device, |item| item.bytes_used -= 4096);
        }),
    ]
}

fn block_groups() -> Vec<Wound> {
    vec![
        plain("a block group is gone", Kind::ChunkWithoutBlockGroup, Sees, |patient| {
            patient.remove(&patient.find_type(EXTENT_TREE, ItemType::BLOCK_GROUP_ITEM));
        }),
        plain("a block group without a chunk", Kind::BlockGroupWithoutChunk, Sees, |patient| {
            let group = last(patient, EXTENT_TREE, ItemType::BLOCK_GROUP_ITEM);
            let key = Key { objectid: group.key.objectid + (1 << 32), ..group.key };
            patient.insert(EXTENT_TREE, key, &group.data);
        }),
        plain("the type of a block group", Kind::BlockGroupFlags, Sees, |patient| {
            let group = patient.find_type(EXTENT_TREE, ItemType::BLOCK_GROUP_ITEM);
            patient.edit_as::<BlockGroupItem>(&group, |item| item.flags ^= 7);
        }),
        plain("used bytes of a block group", Kind::BlockGroupUsed, Sees, |patient| {
            let group = patient.find_type(EXTENT_TREE, ItemType::BLOCK_GROUP_ITEM);
            patient.edit_as::<BlockGroupItem>(&group, |item| item.used += 4096);
        }),
    ]
}

fn free_space() -> Vec<Wound> {
    vec![
        plain("a free range is gone", Kind::FreeSpaceTree, Sees, |patient| {
            patient.remove(&last(patient, FREE_SPACE_TREE, ItemType::FREE_SPACE_EXTENT));
        }),
        plain("a free range is too long", Kind::FreeSpaceTree, Sees, |patient| {
            let mut items = patient.items(FREE_SPACE_TREE).into_iter().rev();
            let range = items.find(|item| {
                item.key.item_type == ItemType::FREE_SPACE_EXTENT && item.key.offset > 8192
            });
            let range = range.expect("a free range");
            let key = Key { offset: range.key.offset - 4096, ..range.key };
            patient.rekey(&range, key);
        }),
        plain("a count of free ranges", Kind::FreeSpaceInfo, Sees, |patient| {
            let info = last(patient, FREE_SPACE_TREE, ItemType::FREE_SPACE_INFO);
            patient.edit_as::<FreeSpaceInfo>(&info, |item| item.extent_count += 1);
        }),
        plain(
            "a block group unknown to the free space tree",
            Kind::FreeSpaceInfo,
            Sees,
            |patient| {
                patient.remove(&last(patient, FREE_SPACE_TREE, ItemType::FREE_SPACE_INFO));
            },
        ),
        plain("a free range after all block groups", Kind::FreeSpaceTree, Sees, |patient| {
            let key = Key::new(1 << 40, ItemType::FREE_SPACE_EXTENT, 1 << 20);
            patient.insert(FREE_SPACE_TREE, key, &[]);
        }),
        plain("a free block group before all others", Kind::FreeSpaceInfo, DoesNot, |patient| {
            let info = last(patient, FREE_SPACE_TREE, ItemType::FREE_SPACE_INFO);
            let key = Key { objectid: 1 << 16, offset: 1 << 16, ..info.key };
            let range = Key { item_type: ItemType::FREE_SPACE_EXTENT, ..key };
            let items = [(key, vec![1, 0, 0, 0, 0, 0, 0, 0]), (range, Vec::new())];
            patient.edit_leaf(patient.leaves(FREE_SPACE_TREE)[0], |leaf| {
                leaf.splice(0..0, items);
            });
        }),
        plain("a free block group after all others", Kind::FreeSpaceInfo, Sees, |patient| {
            let info = last(patient, FREE_SPACE_TREE, ItemType::FREE_SPACE_INFO);
            let key = Key { objectid: 1 << 40, ..info.key };
            patient.insert(FREE_SPACE_TREE, key, &info.data);
        }),
        on(Base::SpaceCache, "a byte of the space cache", Kind::SpaceCache, DoesNot, |patient| {
            patient.invert(cache_extent(patient) + 100, 0, false);
        }),
        on(Base::SpaceCache, "entries of the space cache", Kind::SpaceCache, DoesNot, |patient| {
            let header = patient.find(ROOT_TREE, |key, data| {
                let is_full = data.len() == size_of::<FreeSpaceHeader>() && data[25] > 1;
                key.objectid == FREE_SPACE && is_full
            });
            patient.edit_as::<FreeSpaceHeader>(&header, |item| item.num_entries -= 1);
        }),
    ]
}
