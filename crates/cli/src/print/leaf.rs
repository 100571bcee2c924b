//! Tree blocks: the header, then key pointers or items.

use larder_format::item::{DirEntries, InodeExtrefs, InodeRefs, NAME_MAX, csum_count};
use larder_format::node::{HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN, max_key_pointers};
use larder_format::{ChecksumType, FormatError, ItemType, Key, Node, objectid};
use larder_volume::Volume;

use super::key::{ObjectId, put_key};
use super::text::{Flags, Hex, HexBytes, Put, put};
use super::{extent, file, quota, root, storage};

/// How tree blocks are written.
#[derive(Clone, Copy, Debug)]
pub struct NodeStyle {
    /// The checksum algorithm.
    pub checksum_type: ChecksumType,
    /// Bytes of a sector.
    pub sectorsize: u32,
    /// Replace names of files and extended attributes by `HIDDEN`.
    pub hide_names: bool,
    /// Write the checksum in the header.
    pub header_checksums: bool,
    /// Write every checksum in checksum items.
    pub item_checksums: bool,
}

impl NodeStyle {
    /// The usual style, for blocks of this file system.
    pub fn of(volume: &Volume) -> Self {
        Self {
            checksum_type: volume.checksum_type(),
            sectorsize: volume.sectorsize(),
            hide_names: false,
            header_checksums: false,
            item_checksums: false,
        }
    }
}

/// Appends a whole tree block.
pub fn put_node(out: &mut Vec<u8>, node: Node<'_>, style: NodeStyle) {
    put_header(out, node, style);
    if node.is_leaf() {
        for (slot, (key, data)) in node.iter_items().enumerate() {
            let item = &node.items()[slot];
            put!(out, "\titem ", slot, " ");
            put_key(out, key);
            put!(out, " itemoff ", item.offset, " itemsize ", item.size, "\n");
            put_item(out, key, data, style);
        }
    } else {
        for pointer in node.key_pointers() {
            out.push(b'\t');
            put_key(out, pointer.key.get());
            put!(out, " block ", pointer.blockptr, " gen ", pointer.generation, "\n");
        }
    }
}

fn put_header(out: &mut Vec<u8>, node: Node<'_>, style: NodeStyle) {
    let header = node.header();
    let (kind, free) = if node.is_leaf() {
        ("leaf ", node.leaf_free_space())
    } else {
        ("node ", max_key_pointers(node.bytes().len()) - node.nritems())
    };
    put!(out, kind, header.bytenr);
    if !node.is_leaf() {
        put!(out, " level ", header.level);
    }
    put!(out, " items ", header.nritems, " free space ", free);
    put!(out, " generation ", header.generation, " owner ");
    put!(out, ObjectId::bare(header.owner.get()), "\n");
    let names = [(HEADER_FLAG_WRITTEN, "WRITTEN"), (HEADER_FLAG_RELOC, "RELOC")];
    put!(out, kind, header.bytenr, " flags 0x", Hex(header.flags()), "(");
    put_header_flags(out, header.flags(), &names);
    put!(out, ") backref revision ", header.backref_rev());
    if style.header_checksums {
        put!(out, " csum 0x", HexBytes(&header.csum[..style.checksum_type.size()]));
    }
    out.push(b'\n');
    put!(out, "fs uuid ", header.fsid, "\nchunk uuid ", header.chunk_tree_uuid, "\n");
}

fn put_header_flags(out: &mut Vec<u8>, bits: u64, names: &[(u64, &str)]) {
    if bits != 0 {
        Flags { bits, names }.put(out);
    }
}

/// Appends the content of an item, or why it cannot be read.
fn put_item(out: &mut Vec<u8>, key: Key, data: &[u8], style: NodeStyle) {
    let start = out.len();
    if let Err(error) = put_known_item(out, key, data, style) {
        out.truncate(start);
        put!(out, "\t\tERROR: ", error.to_string().as_str(), "\n");
    }
}

fn put_known_item(
    out: &mut Vec<u8>,
    key: Key,
    data: &[u8],
    style: NodeStyle,
) -> Result<(), FormatError> {
    // v1 space cache headers have no type of their own.
    if key.item_type == ItemType(0) {
        if key.objectid == objectid::FREE_SPACE {
            storage::put_free_space_header(out, data)?;
        }
        return Ok(());
    }
    match key.item_type {
        ItemType::INODE_ITEM => file::put_inode(out, data),
        ItemType::INODE_REF => put_refs(out, data, style),
        ItemType::INODE_EXTREF => put_extrefs(out, data, style),
        ItemType::DIR_ITEM | ItemType::DIR_INDEX | ItemType::XATTR_ITEM => {
            put_dir_entries(out, data, style)
        }
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => file::put_dir_log(out, data),
        ItemType::ORPHAN_ITEM => {
            put!(out, "\t\torphan item\n");
            Ok(())
        }
        ItemType::EXTENT_DATA => file::put_extent_data(out, data),
        ItemType::EXTENT_CSUM => put_checksums(out, key, data, style),
        ItemType::ROOT_ITEM => root::put_root_item(out, data),
        ItemType::ROOT_REF => root::put_root_ref(out, "ref", data),
        ItemType::ROOT_BACKREF => root::put_root_ref(out, "backref", data),
        ItemType::UUID_KEY_SUBVOL | ItemType::UUID_KEY_RECEIVED_SUBVOL => {
            root::put_uuid_item(out, data)
        }
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent::put_extent(out, key, data),
        ItemType::TREE_BLOCK_REF => {
            put!(out, "\t\ttree block backref\n");
            Ok(())
        }
        ItemType::SHARED_BLOCK_REF => {
            put!(out, "\t\tshared block backref\n");
            Ok(())
        }
        ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF => {
            extent::put_keyed_ref(out, key, data)
        }
        ItemType::BLOCK_GROUP_ITEM => storage::put_block_group(out, data),
        ItemType::FREE_SPACE_INFO => storage::put_free_space_info(out, data),
        ItemType::FREE_SPACE_EXTENT => {
            put!(out, "\t\tfree space extent\n");
            Ok(())
        }
        ItemType::FREE_SPACE_BITMAP => {
            put!(out, "\t\tfree space bitmap\n");
            Ok(())
        }
        ItemType::CHUNK_ITEM => storage::put_chunk(out, data),
        ItemType::DEV_ITEM => storage::put_dev_item(out, data),
        ItemType::DEV_EXTENT => storage::put_dev_extent(out, data),
        ItemType::PERSISTENT_ITEM => storage::put_persistent_item(out, key, data),
        ItemType::TEMPORARY_ITEM => storage::put_temporary_item(out, key, data),
        ItemType::RAID_STRIPE => storage::put_raid_stripe(out, data),
        ItemType::QGROUP_STATUS => quota::put_status(out, data),
        ItemType::QGROUP_INFO => quota::put_info(out, data),
        ItemType::QGROUP_LIMIT => quota::put_limit(out, data),
        ItemType::STRING_ITEM => {
            put!(out, "\t\titem data ", *data, "\n");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Appends a name, or a stand-in for it.
fn put_name(out: &mut Vec<u8>, name: &[u8], hide: bool) {
    if hide { "HIDDEN".put(out) } else { name.put(out) }
}

fn put_refs(out: &mut Vec<u8>, data: &[u8], style: NodeStyle) -> Result<(), FormatError> {
    for name in InodeRefs::new(data) {
        let name = name?;
        put!(out, "\t\tindex ", name.index, " namelen ", name.name.len(), " name: ");
        put_name(out, name.name, style.hide_names);
        out.push(b'\n');
    }
    Ok(())
}

fn put_extrefs(out: &mut Vec<u8>, data: &[u8], style: NodeStyle) -> Result<(), FormatError> {
    for name in InodeExtrefs::new(data) {
        let name = name?;
        put!(out, "\t\tindex ", name.index, " parent ", name.parent);
        put!(out, " namelen ", name.name.len(), " name: ");
        put_name(out, name.name, style.hide_names);
        out.push(b'\n');
    }
    Ok(())
}

fn put_dir_entries(out: &mut Vec<u8>, data: &[u8], style: NodeStyle) -> Result<(), FormatError> {
    for entry in DirEntries::new(data) {
        let entry = entry?;
        put!(out, "\t\tlocation ");
        put_key(out, entry.header.location.get());
        put!(out, " type ", file::file_type_name(entry.header.file_type), "\n");
        put!(out, "\t\ttransid ", entry.header.transid, " data_len ", entry.header.data_len);
        put!(out, " name_len ", entry.header.name_len, "\n\t\tname: ");
        put_name(out, entry.name, style.hide_names);
        out.push(b'\n');
        if !entry.data.is_empty() {
            put!(out, "\t\tdata ");
            put_name(out, shown_value(entry.data), style.hide_names);
            out.push(b'\n');
        }
    }
    Ok(())
}

/// The visible part of an extended attribute's value: a C string of a name's length.
fn shown_value(value: &[u8]) -> &[u8] {
    let value = &value[..value.len().min(NAME_MAX)];
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn put_checksums(
    out: &mut Vec<u8>,
    key: Key,
    data: &[u8],
    style: NodeStyle,
) -> Result<(), FormatError> {
    let count = csum_count(data.len(), style.checksum_type)? as u64;
    let sectorsize = u64::from(style.sectorsize);
    let len = count * sectorsize;
    put!(out, "\t\trange start ", key.offset, " end ", key.offset.wrapping_add(len));
    put!(out, " length ", len);
    if style.item_checksums {
        let per_line = if style.checksum_type.size() > 8 { 1 } else { 4 };
        for (number, checksum) in data.chunks_exact(style.checksum_type.size()).enumerate() {
            out.extend_from_slice(if number % per_line == 0 { b"\n\t\t" } else { b" " });
            let address = key.offset.wrapping_add(number as u64 * sectorsize);
            put!(out, "[", address, "] 0x", HexBytes(checksum));
        }
    }
    out.push(b'\n');
    Ok(())
}
