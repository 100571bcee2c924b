//! Names of trees on the command line and in titles.

use larder_format::objectid;

const NAMES: [(&str, u64); 28] = [
    ("ROOT", objectid::ROOT_TREE),
    ("ROOT_TREE", objectid::ROOT_TREE),
    ("EXTENT", objectid::EXTENT_TREE),
    ("EXTENT_TREE", objectid::EXTENT_TREE),
    ("CHUNK", objectid::CHUNK_TREE),
    ("CHUNK_TREE", objectid::CHUNK_TREE),
    ("DEVICE", objectid::DEV_TREE),
    ("DEV", objectid::DEV_TREE),
    ("DEV_TREE", objectid::DEV_TREE),
    ("FS", objectid::FS_TREE),
    ("FS_TREE", objectid::FS_TREE),
    ("CSUM", objectid::CSUM_TREE),
    ("CHECKSUM", objectid::CSUM_TREE),
    ("CSUM_TREE", objectid::CSUM_TREE),
    ("QUOTA", objectid::QUOTA_TREE),
    ("QUOTA_TREE", objectid::QUOTA_TREE),
    ("UUID", objectid::UUID_TREE),
    ("UUID_TREE", objectid::UUID_TREE),
    ("FREE_SPACE", objectid::FREE_SPACE_TREE),
    ("FREE_SPACE_TREE", objectid::FREE_SPACE_TREE),
    ("BLOCK_GROUP", objectid::BLOCK_GROUP_TREE),
    ("BLOCK_GROUP_TREE", objectid::BLOCK_GROUP_TREE),
    ("RAID_STRIPE", objectid::RAID_STRIPE_TREE),
    ("RAID_STRIPE_TREE", objectid::RAID_STRIPE_TREE),
    ("TREE_LOG", objectid::TREE_LOG),
    ("TREE_RELOC", objectid::TREE_RELOC),
    ("DATA_RELOC", objectid::DATA_RELOC_TREE),
    ("DATA_RELOC_TREE", objectid::DATA_RELOC_TREE),
];

/// The id of a tree by number or name, in any case and with `-` for `_`.
pub fn parse(text: &str) -> Result<u64, String> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let wanted = text.to_ascii_uppercase().replace('-', "_");
    NAMES
        .iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, id)| *id)
        .ok_or_else(|| format!("unrecognized tree id: {text}"))
}

/// The name of this tree in a dump.
pub fn title(id: u64) -> &'static str {
    match id {
        objectid::ROOT_TREE => "root",
        objectid::EXTENT_TREE => "extent",
        objectid::CHUNK_TREE => "chunk",
        objectid::DEV_TREE => "device",
        objectid::FS_TREE => "fs",
        objectid::CSUM_TREE => "checksum",
        objectid::QUOTA_TREE => "quota",
        objectid::UUID_TREE => "uuid",
        objectid::FREE_SPACE_TREE => "free space",
        objectid::BLOCK_GROUP_TREE => "block group",
        objectid::RAID_STRIPE_TREE => "raid stripe",
        objectid::TREE_LOG => "log",
        objectid::TREE_RELOC => "reloc",
        objectid::DATA_RELOC_TREE => "data reloc",
        _ => "file",
    }
}
