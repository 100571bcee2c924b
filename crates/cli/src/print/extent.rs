//! Extents and back references.

use larder_format::item::{
    BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_FULL_BACKREF, EXTENT_FLAG_TREE_BLOCK, Extent,
};
use larder_format::{FormatError, ItemType, Key};

use super::key::{ObjectId, put_key};
use super::text::{Flags, put};

const EXTENT_FLAGS: [(u64, &str); 3] = [
    (EXTENT_FLAG_DATA, "DATA"),
    (EXTENT_FLAG_TREE_BLOCK, "TREE_BLOCK"),
    (EXTENT_FLAG_FULL_BACKREF, "FULL_BACKREF"),
];

pub fn put_extent(out: &mut Vec<u8>, key: Key, data: &[u8]) -> Result<(), FormatError> {
    let extent = Extent::parse(key, data)?;
    put!(out, "\t\trefs ", extent.item.refs, " gen ", extent.item.generation, " flags ");
    put!(out, Flags { bits: extent.item.flags.get(), names: &EXTENT_FLAGS }, "\n");
    if let Some(info) = extent.tree_block_info {
        put!(out, "\t\ttree block ");
        put_key(out, info.key.get());
        put!(out, " level ", info.level, "\n");
    } else if key.item_type == ItemType::METADATA_ITEM {
        put!(out, "\t\ttree block skinny level ", key.offset, "\n");
    }
    for inline in extent.back_refs() {
        put_back_ref(out, &inline?.back_ref);
    }
    Ok(())
}

fn put_back_ref(out: &mut Vec<u8>, back_ref: &BackRef) {
    match *back_ref {
        BackRef::TreeBlock { root } => {
            put!(out, "\t\ttree block backref root ", ObjectId::bare(root), "\n");
        }
        BackRef::SharedBlock { parent } => {
            put!(out, "\t\tshared block backref parent ", parent, "\n");
        }
        BackRef::Data { root, objectid, offset, count } => {
            put!(out, "\t\textent data backref root ", ObjectId::bare(root));
            put!(out, " objectid ", objectid, " offset ", offset, " count ", count, "\n");
        }
        BackRef::SharedData { parent, count } => {
            put!(out, "\t\tshared data backref parent ", parent, " count ", count, "\n");
        }
        BackRef::Owner { root } => {
            put!(out, "\t\textent owner root ", root, "\n");
        }
    }
}

pub fn put_keyed_ref(out: &mut Vec<u8>, key: Key, data: &[u8]) -> Result<(), FormatError> {
    match BackRef::parse_keyed(key, data)? {
        BackRef::SharedData { count, .. } => {
            put!(out, "\t\tshared data backref count ", count, "\n");
        }
        other => put_back_ref(out, &other),
    }
    Ok(())
}
