//! Chunks, devices, block groups and free space.

use larder_format::item::{
    BalanceItem, BlockGroupItem, Chunk, DevExtent, DevItem, DevStatsItem, DiskBalanceArgs,
    FreeSpaceHeader, FreeSpaceInfo, RaidStride, balance_flags,
};
use larder_format::{FormatError, Key, objectid, read_exact_item, read_prefix};

use super::key::{ObjectId, put_key};
use super::text::{Hex, put};

pub fn put_dev_item(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let dev = read_exact_item::<DevItem>(data)?;
    put!(out, "\t\tdevid ", dev.devid, " total_bytes ", dev.total_bytes);
    put!(out, " bytes_used ", dev.bytes_used, "\n");
    put!(out, "\t\tio_align ", dev.io_align, " io_width ", dev.io_width);
    put!(out, " sector_size ", dev.sector_size, " type ", dev.kind, "\n");
    put!(out, "\t\tgeneration ", dev.generation, " start_offset ", dev.start_offset);
    put!(out, " dev_group ", dev.dev_group, "\n");
    put!(out, "\t\tseek_speed ", dev.seek_speed, " bandwidth ", dev.bandwidth, "\n");
    put!(out, "\t\tuuid ", dev.uuid, "\n\t\tfsid ", dev.fsid, "\n");
    Ok(())
}

/// Appends a chunk; also used for the system chunks in a superblock.
pub fn put_chunk(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    put_parsed_chunk(out, &Chunk::parse(data)?);
    Ok(())
}

/// Appends a chunk that was read before.
pub fn put_parsed_chunk(out: &mut Vec<u8>, chunk: &Chunk<'_>) {
    let header = chunk.header;
    put!(out, "\t\tlength ", header.length, " owner ", header.owner);
    put!(out, " stripe_len ", header.stripe_len, " type ", chunk.flags(), "\n");
    put!(out, "\t\tio_align ", header.io_align, " io_width ", header.io_width);
    put!(out, " sector_size ", header.sector_size, "\n");
    put!(out, "\t\tnum_stripes ", header.num_stripes, " sub_stripes ", header.sub_stripes, "\n");
    for (number, stripe) in chunk.stripes.iter().enumerate() {
        put!(out, "\t\t\tstripe ", number, " devid ", stripe.devid);
        put!(out, " offset ", stripe.offset, "\n\t\t\tdev_uuid ", stripe.dev_uuid, "\n");
    }
}

pub fn put_dev_extent(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let extent = read_exact_item::<DevExtent>(data)?;
    put!(out, "\t\tdev extent chunk_tree ", extent.chunk_tree, "\n");
    put!(out, "\t\tchunk_objectid ", extent.chunk_objectid);
    put!(out, " chunk_offset ", extent.chunk_offset, " length ", extent.length, "\n");
    put!(out, "\t\tchunk_tree_uuid ", extent.chunk_tree_uuid, "\n");
    Ok(())
}

pub fn put_block_group(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let group = read_exact_item::<BlockGroupItem>(data)?;
    put!(out, "\t\tblock group used ", group.used, " chunk_objectid ", group.chunk_objectid);
    put!(out, " flags ", group.flags(), "\n");
    Ok(())
}

pub fn put_free_space_info(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let info = read_exact_item::<FreeSpaceInfo>(data)?;
    put!(out, "\t\tfree space info extent count ", info.extent_count);
    put!(out, " flags ", info.flags, "\n");
    Ok(())
}

pub fn put_free_space_header(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let (header, _) = read_prefix::<FreeSpaceHeader>(data)?;
    put!(out, "\t\tlocation ");
    put_key(out, header.location.get());
    put!(out, "\n\t\tcache generation ", header.generation, " entries ", header.num_entries);
    put!(out, " bitmaps ", header.num_bitmaps, "\n");
    Ok(())
}

pub fn put_persistent_item(out: &mut Vec<u8>, key: Key, data: &[u8]) -> Result<(), FormatError> {
    put!(out, "\t\tpersistent item objectid ");
    put!(out, ObjectId { id: key.objectid, item_type: key.item_type });
    put!(out, " offset ", key.offset, "\n");
    if key.objectid != objectid::DEV_STATS {
        put!(out, "\t\tunknown persistent item objectid ", key.objectid, "\n");
        return Ok(());
    }
    let stats = read_exact_item::<DevStatsItem>(data)?;
    put!(out, "\t\tdevice stats\n\t\twrite_errs ", stats.write_errs);
    put!(out, " read_errs ", stats.read_errs, " flush_errs ", stats.flush_errs);
    put!(out, " corruption_errs ", stats.corruption_errs);
    put!(out, " generation ", stats.generation_errs, "\n");
    Ok(())
}

pub fn put_temporary_item(out: &mut Vec<u8>, key: Key, data: &[u8]) -> Result<(), FormatError> {
    put!(out, "\t\ttemporary item objectid ", ObjectId::bare(key.objectid));
    put!(out, " offset ", key.offset, "\n");
    if key.objectid != objectid::BALANCE {
        put!(out, "\t\tunknown temporary item objectid ", key.objectid, "\n");
        return Ok(());
    }
    let balance = read_exact_item::<BalanceItem>(data)?;
    let flags = balance.flags.get();
    put!(out, "\t\tbalance status flags ", Hex(flags), "\n");
    for (bit, name, args) in [
        (balance_flags::DATA, "DATA", &balance.data),
        (balance_flags::METADATA, "METADATA", &balance.meta),
        (balance_flags::SYSTEM, "SYSTEM", &balance.sys),
    ] {
        if flags & bit != 0 {
            put!(out, "\t\t", *name, "\n");
            put_balance_args(out, args);
        }
    }
    Ok(())
}

fn put_balance_args(out: &mut Vec<u8>, args: &DiskBalanceArgs) {
    let halves = |number: u64| (number & u64::from(u32::MAX), number >> 32);
    let (usage_min, usage_max) = halves(args.usage.get());
    let (limit_min, limit_max) = halves(args.limit.get());
    put!(out, "\t\tprofiles ", args.profiles, " devid ", args.devid);
    put!(out, " target ", args.target, " flags ", args.flags, "\n");
    put!(out, "\t\tusage_min ", usage_min, " usage_max ", usage_max);
    put!(out, " pstart ", args.pstart, " pend ", args.pend, "\n");
    put!(out, "\t\tvstart ", args.vstart, " vend ", args.vend);
    put!(out, " limit_min ", limit_min, " limit_max ", limit_max, "\n");
    put!(out, "\t\tstripes_min ", args.stripes_min, " stripes_max ", args.stripes_max, "\n");
}

pub fn put_raid_stripe(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let mut rest = data;
    let mut number = 0_usize;
    while !rest.is_empty() {
        let (stride, after) = read_prefix::<RaidStride>(rest)?;
        put!(out, "\t\t\tstripe ", number, " devid ", stride.devid);
        put!(out, " physical ", stride.physical, "\n");
        rest = after;
        number += 1;
    }
    Ok(())
}
