//! An estimate of the space for the content, before any of it is read.
//!
//! An upper bound in all but odd cases (extended attributes are not known yet). Only the sizes of
//! chunks and of files depend on it.

use larder_format::item::{
    DirItemHeader, ExtentItem, FileExtentItem, InodeItem, InodeRefHeader,
    MAX_COMPRESSED_EXTENT_BYTES, MAX_EXTENT_BYTES,
};
use larder_format::node::ITEM_HEADER_SIZE;

use crate::Features;
use crate::settings::{MAX_INLINE_BYTES, Settings};
use crate::source::{Kind, Source, SourceEntry, Subvolume};
use crate::space::{Appetite, Sizes};

/// Space that every file system needs besides its content: a few blocks of each tree, and the
/// kernel's first transactions.
const SPARE_METADATA_BYTES: u64 = 4 * 1024 * 1024;
/// One or two extended attributes, or the target of a symbolic link.
const USUAL_EXTRA_BYTES: u64 = 100;

/// The space that the content needs.
pub(crate) fn appetite(source: &Source, settings: &Settings) -> Appetite {
    let (mut data_bytes, mut item_bytes) = (0, 0);
    for subvolume in &source.subvolumes {
        for (at, node) in subvolume.nodes().iter().enumerate() {
            item_bytes += name_bytes(subvolume, node);
            if subvolume.is_first_name(at as u32) {
                let (data, items) = inode_bytes(node, settings);
                data_bytes += data;
                item_bytes += items;
            }
        }
    }
    // Internal nodes, free space in blocks, and the blocks' own extent items.
    let mut metadata_bytes = item_bytes + item_bytes / 8 + SPARE_METADATA_BYTES;
    if settings.has(Features::MIXED_GROUPS) {
        metadata_bytes += data_bytes;
        data_bytes = 0;
    }
    let sizes = if settings.shrink { Sizes::Exact } else { Sizes::Usual };
    Appetite { data_bytes, metadata_bytes, sizes }
}

fn item(data: usize) -> u64 {
    (ITEM_HEADER_SIZE + data) as u64
}

/// Two directory entries and a reference.
fn name_bytes(subvolume: &Subvolume, node: &SourceEntry) -> u64 {
    let name = subvolume.name(node).len();
    item(size_of::<DirItemHeader>() + name) * 2 + item(size_of::<InodeRefHeader>() + name)
}

/// Bytes in data extents and in items of an inode.
fn inode_bytes(node: &SourceEntry, settings: &Settings) -> (u64, u64) {
    let inode = item(size_of::<InodeItem>()) + USUAL_EXTRA_BYTES;
    if node.kind != Kind::File || node.data_bytes == 0 {
        return (0, inode);
    }
    if node.size <= MAX_INLINE_BYTES as u64 {
        return (0, inode + item(size_of::<FileExtentItem>()) + node.size);
    }
    let sector_size = settings.sector_size as u64;
    let data = node.data_bytes.next_multiple_of(sector_size);
    let longest = match settings.compression {
        Some(_) => MAX_COMPRESSED_EXTENT_BYTES,
        None => MAX_EXTENT_BYTES,
    };
    let inline_reference = 29;
    let extent =
        item(size_of::<FileExtentItem>()) + item(size_of::<ExtentItem>() + inline_reference);
    let checksums = data / sector_size * settings.checksum.size() as u64;
    (data, inode + data.div_ceil(longest) * extent + checksums)
}
