//! Keys, with names for the object ids that have one.

use larder_format::item::QGROUP_LEVEL_SHIFT;
use larder_format::{ItemType, Key, objectid};

use super::text::{Hex16, Put, put};

/// The name of an object id that means the same in every tree.
pub fn objectid_name(id: u64) -> Option<&'static str> {
    Some(match id {
        objectid::ROOT_TREE => "ROOT_TREE",
        objectid::EXTENT_TREE => "EXTENT_TREE",
        objectid::CHUNK_TREE => "CHUNK_TREE",
        objectid::DEV_TREE => "DEV_TREE",
        objectid::FS_TREE => "FS_TREE",
        objectid::ROOT_TREE_DIR => "ROOT_TREE_DIR",
        objectid::CSUM_TREE => "CSUM_TREE",
        objectid::QUOTA_TREE => "QUOTA_TREE",
        objectid::UUID_TREE => "UUID_TREE",
        objectid::FREE_SPACE_TREE => "FREE_SPACE_TREE",
        objectid::BLOCK_GROUP_TREE => "BLOCK_GROUP_TREE",
        objectid::RAID_STRIPE_TREE => "RAID_STRIPE_TREE",
        objectid::BALANCE => "BALANCE",
        objectid::ORPHAN => "ORPHAN",
        objectid::TREE_LOG => "TREE_LOG",
        objectid::TREE_LOG_FIXUP => "TREE_LOG_FIXUP",
        objectid::TREE_RELOC => "TREE_RELOC",
        objectid::DATA_RELOC_TREE => "DATA_RELOC_TREE",
        objectid::EXTENT_CSUM => "EXTENT_CSUM",
        objectid::FREE_SPACE => "FREE_SPACE",
        objectid::FREE_INO => "FREE_INO",
        objectid::MULTIPLE => "MULTIPLE",
        u64::MAX => "-1",
        _ => return None,
    })
}

/// An object id, by its name if it has one. The type of the key says what some ids mean.
pub struct ObjectId {
    /// The id.
    pub id: u64,
    /// Type of the key that it is in.
    pub item_type: ItemType,
}

impl ObjectId {
    /// An id that stands outside a key.
    pub const fn bare(id: u64) -> Self {
        Self { id, item_type: ItemType(0) }
    }
}

impl Put for ObjectId {
    fn put(&self, out: &mut Vec<u8>) {
        match (self.item_type, self.id) {
            (ItemType::PERSISTENT_ITEM, objectid::DEV_STATS) => "DEV_STATS".put(out),
            (ItemType::DEV_EXTENT, id) => id.put(out),
            (ItemType::QGROUP_RELATION, id) => QgroupId(id).put(out),
            (ItemType::UUID_KEY_SUBVOL | ItemType::UUID_KEY_RECEIVED_SUBVOL, id) => {
                put!(out, "0x", Hex16(id));
            }
            (ItemType::DEV_ITEM, objectid::DEV_ITEMS) => "DEV_ITEMS".put(out),
            (ItemType::CHUNK_ITEM, objectid::FIRST_CHUNK_TREE) => "FIRST_CHUNK_TREE".put(out),
            (_, id) => match objectid_name(id) {
                Some(name) => name.put(out),
                None => id.put(out),
            },
        }
    }
}

/// A quota group's id as `level/id`.
pub struct QgroupId(pub u64);

impl Put for QgroupId {
    fn put(&self, out: &mut Vec<u8>) {
        let id = self.0 & ((1 << QGROUP_LEVEL_SHIFT) - 1);
        put!(out, self.0 >> QGROUP_LEVEL_SHIFT, "/", id);
    }
}

impl Put for ItemType {
    fn put(&self, out: &mut Vec<u8>) {
        match self.name() {
            Some(name) => name.put(out),
            None => put!(out, "UNKNOWN.", self.0),
        }
    }
}

/// Appends `key (objectid type offset)`.
pub fn put_key(out: &mut Vec<u8>, key: Key) {
    let Key { objectid, item_type, offset } = key;
    put!(out, "key (", ObjectId { id: objectid, item_type }, " ");
    if item_type == ItemType(0) && objectid == objectid::FREE_SPACE {
        "UNTYPED".put(out);
    } else {
        item_type.put(out);
    }
    out.push(b' ');
    match item_type {
        ItemType::QGROUP_RELATION | ItemType::QGROUP_INFO | ItemType::QGROUP_LIMIT => {
            QgroupId(offset).put(out);
        }
        ItemType::UUID_KEY_SUBVOL | ItemType::UUID_KEY_RECEIVED_SUBVOL => {
            put!(out, "0x", Hex16(offset));
        }
        // A relocation tree's root item names the tree that it copies.
        ItemType::ROOT_ITEM if objectid == objectid::TREE_RELOC => {
            ObjectId::bare(offset).put(out);
        }
        _ => offset.put(out),
    }
    out.push(b')');
}

/// `key (objectid type offset)` as a string.
pub fn key_text(key: Key) -> String {
    let mut out = Vec::new();
    put_key(&mut out, key);
    String::from_utf8_lossy(&out).into_owned()
}
