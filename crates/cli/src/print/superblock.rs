//! Superblocks, as `dump-super` shows them.

use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::node::{HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN};
use larder_format::superblock::{
    BackupRoot, MAGIC, SUPER_FLAG_CHANGING_FSID, SUPER_FLAG_CHANGING_FSID_V2, SUPER_FLAG_ERROR,
    SUPER_FLAG_METADUMP, SUPER_FLAG_METADUMP_V2, SUPER_FLAG_SEEDING, Superblock,
};
use larder_format::{ChecksumType, FormatError};
use zerocopy::IntoBytes;

use super::key::put_key;
use super::storage::put_parsed_chunk;
use super::text::{Hex, HexBytes, put};

pub(super) const SUPER_FLAGS: [(u64, &str); 8] = [
    (HEADER_FLAG_WRITTEN, "WRITTEN"),
    (HEADER_FLAG_RELOC, "RELOC"),
    (SUPER_FLAG_ERROR, "ERROR"),
    (SUPER_FLAG_CHANGING_FSID, "CHANGING_FSID"),
    (SUPER_FLAG_CHANGING_FSID_V2, "CHANGING_FSID_V2"),
    (SUPER_FLAG_SEEDING, "SEEDING"),
    (SUPER_FLAG_METADUMP, "METADUMP"),
    (SUPER_FLAG_METADUMP_V2, "METADUMP_V2"),
];

pub(super) const COMPAT_RO_FLAGS: [(u64, &str); 4] = [
    (CompatRoFlags::FREE_SPACE_TREE.bits(), "FREE_SPACE_TREE"),
    (CompatRoFlags::FREE_SPACE_TREE_VALID.bits(), "FREE_SPACE_TREE_VALID"),
    (CompatRoFlags::VERITY.bits(), "VERITY"),
    (CompatRoFlags::BLOCK_GROUP_TREE.bits(), "BLOCK_GROUP_TREE"),
];

pub(super) const INCOMPAT_FLAGS: [(u64, &str); 16] = [
    (IncompatFlags::MIXED_BACKREF.bits(), "MIXED_BACKREF"),
    (IncompatFlags::DEFAULT_SUBVOL.bits(), "DEFAULT_SUBVOL"),
    (IncompatFlags::MIXED_GROUPS.bits(), "MIXED_GROUPS"),
    (IncompatFlags::COMPRESS_LZO.bits(), "COMPRESS_LZO"),
    (IncompatFlags::COMPRESS_ZSTD.bits(), "COMPRESS_ZSTD"),
    (IncompatFlags::BIG_METADATA.bits(), "BIG_METADATA"),
    (IncompatFlags::EXTENDED_IREF.bits(), "EXTENDED_IREF"),
    (IncompatFlags::RAID56.bits(), "RAID56"),
    (IncompatFlags::SKINNY_METADATA.bits(), "SKINNY_METADATA"),
    (IncompatFlags::NO_HOLES.bits(), "NO_HOLES"),
    (IncompatFlags::METADATA_UUID.bits(), "METADATA_UUID"),
    (IncompatFlags::RAID1C34.bits(), "RAID1C34"),
    (IncompatFlags::ZONED.bits(), "ZONED"),
    (IncompatFlags::EXTENT_TREE_V2.bits(), "EXTENT_TREE_V2"),
    (IncompatFlags::RAID_STRIPE_TREE.bits(), "RAID_STRIPE_TREE"),
    (IncompatFlags::SIMPLE_QUOTA.bits(), "SIMPLE_QUOTA"),
];

/// Appends the fields of a superblock, in full with the system chunks and backup roots.
pub fn put_superblock(out: &mut Vec<u8>, superblock: &Superblock, full: bool) {
    put_identity(out, superblock);
    put_trees(out, superblock);
    put_features(out, superblock);
    put_device(out, superblock);
    if full {
        put!(out, "sys_chunk_array[2048]:\n");
        if let Err(error) = put_system_chunks(out, superblock) {
            put!(out, "\tERROR: ", error.to_string().as_str(), "\n");
        }
        put!(out, "backup_roots[4]:\n");
        for (number, backup) in superblock.super_roots.iter().enumerate() {
            if backup.tree_root.get() == 0 && backup.tree_root_gen.get() == 0 {
                // Until the fourth commit some are empty.
                continue;
            }
            put_backup_root(out, number, backup);
        }
    }
    out.push(b'\n');
}

fn put_identity(out: &mut Vec<u8>, superblock: &Superblock) {
    let number = superblock.csum_type.get();
    put!(out, "csum_type\t\t", number, " (");
    match ChecksumType::from_disk(number) {
        Some(kind) => {
            let stored = &superblock.csum[..kind.size()];
            let matches = kind.compute_block(superblock.as_bytes()).as_bytes() == stored;
            put!(out, kind.name(), ")\ncsum_size\t\t", kind.size(), "\n");
            put!(out, "csum\t\t\t0x", HexBytes(stored));
            put!(out, if matches { " [match]\n" } else { " [DON'T MATCH]\n" });
        }
        None => put!(out, "INVALID)\n"),
    }
    put!(out, "bytenr\t\t\t", superblock.bytenr, "\n");
    put!(out, "flags\t\t\t0x", Hex(superblock.flags.get()), "\n");
    put_flag_lines(out, superblock.flags.get(), &SUPER_FLAGS);
    put!(out, "magic\t\t\t");
    put_printable(out, superblock.magic.as_bytes());
    let sound = superblock.magic.get() == MAGIC;
    put!(out, if sound { " [match]\n" } else { " [DON'T MATCH]\n" });
    put!(out, "fsid\t\t\t", superblock.fsid, "\n");
    put!(out, "metadata_uuid\t\t", superblock.metadata_uuid(), "\n");
    put!(out, "label\t\t\t");
    put_printable(out, superblock.label());
    out.push(b'\n');
}

fn put_trees(out: &mut Vec<u8>, superblock: &Superblock) {
    put!(out, "generation\t\t", superblock.generation, "\n");
    put!(out, "root\t\t\t", superblock.root, "\n");
    put!(out, "sys_array_size\t\t", superblock.sys_chunk_array_size, "\n");
    put!(out, "chunk_root_generation\t", superblock.chunk_root_generation, "\n");
    put!(out, "root_level\t\t", superblock.root_level, "\n");
    put!(out, "chunk_root\t\t", superblock.chunk_root, "\n");
    put!(out, "chunk_root_level\t", superblock.chunk_root_level, "\n");
    put!(out, "log_root\t\t", superblock.log_root, "\n");
    put!(out, "log_root_transid (deprecated)\t", superblock.log_root_transid, "\n");
    put!(out, "log_root_level\t\t", superblock.log_root_level, "\n");
    put!(out, "total_bytes\t\t", superblock.total_bytes, "\n");
    put!(out, "bytes_used\t\t", superblock.bytes_used, "\n");
    put!(out, "sectorsize\t\t", superblock.sectorsize, "\n");
    put!(out, "nodesize\t\t", superblock.nodesize, "\n");
    put!(out, "leafsize (deprecated)\t", superblock.leafsize, "\n");
    put!(out, "stripesize\t\t", superblock.stripesize, "\n");
    put!(out, "root_dir\t\t", superblock.root_dir_objectid, "\n");
    put!(out, "num_devices\t\t", superblock.num_devices, "\n");
}

fn put_features(out: &mut Vec<u8>, superblock: &Superblock) {
    put!(out, "compat_flags\t\t0x", Hex(superblock.compat_flags.get()), "\n");
    put!(out, "compat_ro_flags\t\t0x", Hex(superblock.compat_ro_flags.get()), "\n");
    put_flag_lines(out, superblock.compat_ro_flags.get(), &COMPAT_RO_FLAGS);
    put!(out, "incompat_flags\t\t0x", Hex(superblock.incompat_flags.get()), "\n");
    put_flag_lines(out, superblock.incompat_flags.get(), &INCOMPAT_FLAGS);
    put!(out, "cache_generation\t", superblock.cache_generation, "\n");
    put!(out, "uuid_tree_generation\t", superblock.uuid_tree_generation, "\n");
}

fn put_device(out: &mut Vec<u8>, superblock: &Superblock) {
    let dev = &superblock.dev_item;
    let expected = superblock.metadata_uuid().into_bytes();
    put!(out, "dev_item.uuid\t\t", dev.uuid, "\n");
    put!(out, "dev_item.fsid\t\t", dev.fsid);
    put!(out, if dev.fsid == expected { " [match]\n" } else { " [DON'T MATCH]\n" });
    put!(out, "dev_item.type\t\t", dev.kind, "\n");
    put!(out, "dev_item.total_bytes\t", dev.total_bytes, "\n");
    put!(out, "dev_item.bytes_used\t", dev.bytes_used, "\n");
    put!(out, "dev_item.io_align\t", dev.io_align, "\n");
    put!(out, "dev_item.io_width\t", dev.io_width, "\n");
    put!(out, "dev_item.sector_size\t", dev.sector_size, "\n");
    put!(out, "dev_item.devid\t\t", dev.devid, "\n");
    put!(out, "dev_item.dev_group\t", dev.dev_group, "\n");
    put!(out, "dev_item.seek_speed\t", dev.seek_speed, "\n");
    put!(out, "dev_item.bandwidth\t", dev.bandwidth, "\n");
    put!(out, "dev_item.generation\t", dev.generation, "\n");
}

/// Appends the names of the bits that are set, a line each; nothing for no bit.
fn put_flag_lines(out: &mut Vec<u8>, bits: u64, names: &[(u64, &str)]) {
    if bits == 0 {
        return;
    }
    put!(out, "\t\t\t( ");
    let mut known = 0;
    for (bit, name) in names.iter().filter(|(bit, _)| bits & bit != 0) {
        if known != 0 {
            put!(out, " |\n\t\t\t  ");
        }
        put!(out, **name);
        known |= bit;
    }
    let unknown = bits & !known;
    if unknown != 0 {
        if known != 0 {
            put!(out, " |\n\t\t\t  ");
        }
        put!(out, "unknown flag: 0x", Hex(unknown));
    }
    put!(out, " )\n");
}

/// Appends bytes up to the first zero, with a dot for those that are not printable ASCII.
pub(super) fn put_printable(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes.iter().take_while(|byte| **byte != 0) {
        out.push(if byte.is_ascii_graphic() || *byte == b' ' { *byte } else { b'.' });
    }
}

fn put_system_chunks(out: &mut Vec<u8>, superblock: &Superblock) -> Result<(), FormatError> {
    for (number, chunk) in superblock.system_chunks().enumerate() {
        let (key, chunk) = chunk?;
        put!(out, "\titem ", number, " ");
        put_key(out, key);
        out.push(b'\n');
        put_parsed_chunk(out, &chunk);
    }
    Ok(())
}

fn put_backup_root(out: &mut Vec<u8>, number: usize, backup: &BackupRoot) {
    put!(out, "\tbackup ", number, ":\n");
    let mut root = |name: &str, address: u64, generation: u64, level: u8| {
        put!(out, "\t\t", *name, address, "\tgen: ", generation, "\tlevel: ", level, "\n");
    };
    let b = backup;
    root("backup_tree_root:\t", b.tree_root.get(), b.tree_root_gen.get(), b.tree_root_level);
    root("backup_chunk_root:\t", b.chunk_root.get(), b.chunk_root_gen.get(), b.chunk_root_level);
    root(
        "backup_extent_root:\t",
        b.extent_root.get(),
        b.extent_root_gen.get(),
        b.extent_root_level,
    );
    root("backup_fs_root:\t\t", b.fs_root.get(), b.fs_root_gen.get(), b.fs_root_level);
    root("backup_dev_root:\t", b.dev_root.get(), b.dev_root_gen.get(), b.dev_root_level);
    root("csum_root:\t", b.csum_root.get(), b.csum_root_gen.get(), b.csum_root_level);
    put!(out, "\t\tbackup_total_bytes:\t", b.total_bytes, "\n");
    put!(out, "\t\tbackup_bytes_used:\t", b.bytes_used, "\n");
    put!(out, "\t\tbackup_num_devices:\t", b.num_devices, "\n\n");
}
