//! Finding subvolumes by their uuids, and where they are.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use larder_format::item::{RootRef, uuid_items, uuid_key};
use larder_format::{ItemType, Key, Uuid, objectid};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::{MAGIC, invalid};

const SEARCH_BYTES: usize = 3992;
const LOOKUP_BYTES: usize = 4080;
/// Subvolumes that may lie in each other.
const MOST_NESTED: usize = 1024;

/// `struct btrfs_ioctl_search_args`: a `struct btrfs_ioctl_search_key` and room for what is found.
#[repr(C)]
struct SearchArgs {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused_words: [u64; 4],
    buf: [u8; SEARCH_BYTES],
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct LookupArgs {
    treeid: u64,
    objectid: u64,
    name: [u8; LOOKUP_BYTES],
}

const _: () = assert!(size_of::<SearchArgs>() == 4096 && size_of::<LookupArgs>() == 4096);

/// `BTRFS_IOC_TREE_SEARCH`, `BTRFS_IOC_INO_LOOKUP`.
const TREE_SEARCH: Opcode = opcode::read_write::<SearchArgs>(MAGIC, 17);
const INO_LOOKUP: Opcode = opcode::read_write::<LookupArgs>(MAGIC, 18);

/// Ids of the subvolumes of the file system that `inside` lies in which have this uuid, or were received
/// from one that has it, by its uuid tree.
pub fn subvolumes_of(inside: impl AsFd, uuid: Uuid) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for item_type in [ItemType::UUID_KEY_RECEIVED_SUBVOL, ItemType::UUID_KEY_SUBVOL] {
        let key = uuid_key(uuid, item_type);
        if let Some((_, data)) = first_item(&inside, objectid::UUID_TREE, key, key.offset)? {
            let items = uuid_items(&data).map_err(|_| invalid("an item of the uuid tree"))?;
            ids.extend(items.iter().map(|id| id.get()));
        }
    }
    Ok(ids)
}

/// The path of a subvolume from the top level, without a slash at either end; none if it has no name.
pub fn subvolume_path(inside: impl AsFd, id: u64) -> io::Result<Option<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut at = id;
    while at != objectid::FS_TREE {
        let key = Key::new(at, ItemType::ROOT_BACKREF, 0);
        let found = first_item(&inside, objectid::ROOT_TREE, key, u64::MAX)?;
        let Some((parent, data)) = found else { return Ok(None) };
        let named = RootRef::parse(&data).map_err(|_| invalid("a reference of a subvolume"))?;
        if parts.len() >= MOST_NESTED {
            return Err(invalid("subvolumes lie in each other"));
        }
        // It ends with a slash if it is not empty.
        parts.push([&directory_path(&inside, parent, named.dirid)?, named.name].concat());
        at = parent;
    }
    parts.reverse();
    Ok(Some(parts.join(&b'/')))
}

/// The offset and data of the first item from `key` on with its objectid and type, up to `max_offset`.
fn first_item(
    inside: impl AsFd,
    tree_id: u64,
    key: Key,
    max_offset: u64,
) -> io::Result<Option<(u64, Vec<u8>)>> {
    let item_type = u32::from(key.item_type.0);
    let mut search = SearchArgs {
        tree_id,
        min_objectid: key.objectid,
        max_objectid: key.objectid,
        min_offset: key.offset,
        max_offset,
        min_transid: 0,
        max_transid: u64::MAX,
        min_type: item_type,
        max_type: item_type,
        nr_items: 1,
        unused: 0,
        unused_words: [0; 4],
        buf: [0; SEARCH_BYTES],
    };
    // SAFETY: `SearchArgs` has the layout that this request reads and writes, and no pointers; it holds
    // numbers only, of which every value is valid.
    unsafe { ioctl(inside, Updater::<TREE_SEARCH, _>::new(&mut search)) }?;
    if search.nr_items == 0 {
        return Ok(None);
    }
    // `struct btrfs_ioctl_search_header`: transid, objectid, offset, type, length.
    let (header, data) = search.buf.split_at(32);
    let offset = u64::from_ne_bytes(header[16..24].try_into().map_err(|_| invalid("a header"))?);
    let len = u32::from_ne_bytes(header[28..32].try_into().map_err(|_| invalid("a header"))?);
    let data = data.get(..len as usize).ok_or(invalid("an item that is too long"))?;
    Ok(Some((offset, data.to_vec())))
}

/// The path of a directory in its subvolume, with a slash behind it; that of the root is empty.
fn directory_path(inside: impl AsFd, treeid: u64, objectid: u64) -> io::Result<Vec<u8>> {
    let mut lookup = LookupArgs { treeid, objectid, name: [0; LOOKUP_BYTES] };
    // SAFETY: `LookupArgs` has the layout that this request reads and writes, and no pointers; it holds
    // numbers only, of which every value is valid.
    unsafe { ioctl(inside, Updater::<INO_LOOKUP, _>::new(&mut lookup)) }?;
    let len = lookup.name.iter().position(|byte| *byte == 0).unwrap_or(LOOKUP_BYTES);
    Ok(lookup.name[..len].to_vec())
}
