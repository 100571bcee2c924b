//! All parsers of items.

use larder_format::item::{
    BackRef, BalanceItem, BlockGroupItem, Chunk, DevExtent, DevItem, DevReplaceItem, DevStatsItem,
    DirEntries, DirLogItem, Extent, FileExtent, FreeSpaceHeader, FreeSpaceInfo, InodeExtrefs,
    InodeItem, InodeRefs, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, RootItem, RootRef,
    VerityDescriptorItem, csum_count, uuid_items,
};
use larder_format::{ChecksumType, ItemType, Key, read_exact_item};

/// Passes the item to every parser, not only to that of its type.
pub(crate) fn parse(key: Key, data: &[u8]) {
    fixed_length(data);
    DirEntries::new(data).flatten().for_each(|entry| _ = entry.file_type());
    InodeRefs::new(data).for_each(drop);
    InodeExtrefs::new(data).for_each(drop);
    if let Ok(extent) = FileExtent::parse(data) {
        let _ = (extent.header(), extent.num_bytes());
    }
    for item_type in [key.item_type, ItemType::EXTENT_ITEM, ItemType::METADATA_ITEM] {
        if let Ok(extent) = Extent::parse(Key { item_type, ..key }, data) {
            extent.back_refs().flatten().for_each(|inline| round_trip(inline.back_ref));
        }
    }
    let _ = BackRef::parse_keyed(key, data);
    if let Ok(root) = RootItem::parse(data) {
        let _ = (root.bytenr(), root.is_read_only(), root.uuid());
    }
    let _ = RootRef::parse(data);
    if let Ok(chunk) = Chunk::parse(data) {
        let _ = (chunk.flags().profile(), chunk.flags().type_name());
    }
    let _ = (uuid_items(data), QgroupStatusItem::parse(data));
    for checksum in ChecksumType::ALL {
        let _ = csum_count(data.len(), checksum);
    }
}

fn fixed_length(data: &[u8]) {
    let _ = read_exact_item::<InodeItem>(data);
    let _ = read_exact_item::<BlockGroupItem>(data);
    let _ = read_exact_item::<DevItem>(data);
    let _ = read_exact_item::<DevExtent>(data);
    let _ = read_exact_item::<DevStatsItem>(data);
    let _ = read_exact_item::<DevReplaceItem>(data);
    let _ = read_exact_item::<BalanceItem>(data);
    let _ = read_exact_item::<FreeSpaceInfo>(data);
    let _ = read_exact_item::<FreeSpaceHeader>(data);
    let _ = read_exact_item::<QgroupInfoItem>(data);
    let _ = read_exact_item::<QgroupLimitItem>(data);
    let _ = read_exact_item::<DirLogItem>(data);
    let _ = read_exact_item::<VerityDescriptorItem>(data);
}

fn round_trip(back_ref: BackRef) {
    let mut bytes = Vec::new();
    back_ref.write_inline(&mut bytes);
    assert_eq!(bytes.len(), back_ref.inline_len_bytes());
}
