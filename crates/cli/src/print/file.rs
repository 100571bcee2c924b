//! Inodes and the content of files.

use larder_format::compression::Algorithm;
use larder_format::item::{DirLogItem, FileExtent, InodeFlags, InodeItem};
use larder_format::{FormatError, read_exact_item};

use super::text::{Flags, Hex, Octal, put};

const INODE_FLAGS: [(u64, &str); 14] = [
    (InodeFlags::NODATASUM.bits(), "NODATASUM"),
    (InodeFlags::NODATACOW.bits(), "NODATACOW"),
    (InodeFlags::READONLY.bits(), "READONLY"),
    (InodeFlags::NOCOMPRESS.bits(), "NOCOMPRESS"),
    (InodeFlags::PREALLOC.bits(), "PREALLOC"),
    (InodeFlags::SYNC.bits(), "SYNC"),
    (InodeFlags::IMMUTABLE.bits(), "IMMUTABLE"),
    (InodeFlags::APPEND.bits(), "APPEND"),
    (InodeFlags::NODUMP.bits(), "NODUMP"),
    (InodeFlags::NOATIME.bits(), "NOATIME"),
    (InodeFlags::DIRSYNC.bits(), "DIRSYNC"),
    (InodeFlags::COMPRESS.bits(), "COMPRESS"),
    (InodeFlags::ROOT_ITEM_INIT.bits(), "ROOT_ITEM_INIT"),
    (InodeFlags::RO_VERITY.bits(), "VERITY"),
];

/// The name of a directory entry's type.
pub fn file_type_name(number: u8) -> &'static str {
    match number {
        0 => "UNKNOWN",
        1 => "FILE",
        2 => "DIR",
        3 => "CHRDEV",
        4 => "BLKDEV",
        5 => "FIFO",
        6 => "SOCK",
        7 => "SYMLINK",
        8 => "XATTR",
        _ => "DIR_ITEM.unknown",
    }
}

pub fn put_inode(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    put_inode_item(out, read_exact_item::<InodeItem>(data)?);
    Ok(())
}

fn put_inode_item(out: &mut Vec<u8>, inode: &InodeItem) {
    put!(out, "\t\tgeneration ", inode.generation, " transid ", inode.transid);
    put!(out, " size ", inode.size, " nbytes ", inode.nbytes, "\n");
    put!(out, "\t\tblock group ", inode.block_group, " mode ", Octal(inode.mode.get().into()));
    put!(out, " links ", inode.nlink, " uid ", inode.uid, " gid ", inode.gid);
    put!(out, " rdev ", inode.rdev, "\n");
    let bits = inode.flags.get();
    put!(out, "\t\tsequence ", inode.sequence, " flags 0x", Hex(bits), "(");
    put!(out, Flags { bits, names: &INODE_FLAGS }, ")\n");
    put!(out, "\t\tatime ", inode.atime, "\n\t\tctime ", inode.ctime);
    put!(out, "\n\t\tmtime ", inode.mtime, "\n\t\totime ", inode.otime, "\n");
}

pub fn put_dir_log(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let item = read_exact_item::<DirLogItem>(data)?;
    put!(out, "\t\tdir log end ", item.end, "\n");
    Ok(())
}

fn compression_name(number: u8) -> &'static str {
    if number == 0 {
        return "none";
    }
    Algorithm::from_disk(number).map_or("unknown", Algorithm::name)
}

pub fn put_extent_data(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let extent = FileExtent::parse(data)?;
    let header = extent.header();
    let (kind, name) = match extent {
        FileExtent::Inline { .. } => (0_u8, "inline"),
        FileExtent::Regular { preallocated: false, .. } => (1, "regular"),
        FileExtent::Regular { preallocated: true, .. } => (2, "prealloc"),
    };
    put!(out, "\t\tgeneration ", header.generation, " type ", kind, " (", name, ")\n");
    let compression = compression_name(header.compression);
    match extent {
        FileExtent::Inline { data, .. } => {
            put!(out, "\t\tinline extent data size ", data.len());
            put!(out, " ram_bytes ", header.ram_bytes, " compression ", header.compression);
            put!(out, " (", compression, ")\n");
        }
        FileExtent::Regular { extent, preallocated: true, .. } => {
            put!(out, "\t\tprealloc data disk byte ", extent.disk_bytenr);
            put!(out, " nr ", extent.disk_num_bytes, "\n");
            put!(out, "\t\tprealloc data offset ", extent.offset, " nr ", extent.num_bytes, "\n");
        }
        FileExtent::Regular { extent, .. } => {
            put!(out, "\t\textent data disk byte ", extent.disk_bytenr);
            put!(out, " nr ", extent.disk_num_bytes, "\n");
            put!(out, "\t\textent data offset ", extent.offset, " nr ", extent.num_bytes);
            put!(out, " ram ", header.ram_bytes, "\n");
            put!(out, "\t\textent compression ", header.compression, " (", compression, ")\n");
        }
    }
    Ok(())
}
