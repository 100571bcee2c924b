use larder_format::ItemType;
use larder_format::item::{BlockGroupItem, ChunkHeader, DevExtent, DevItem};

use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

const START: u64 = 1 << 30;
const DATA: u64 = 1;
const SYSTEM: u64 = 2;
const METADATA: u64 = 4;
const RAID0: u64 = 8;
const RAID1: u64 = 1 << 4;
const DUP: u64 = 1 << 5;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
const RAID1C3: u64 = 1 << 9;
const RAID1C4: u64 = 1 << 10;

fn chunk_at(start: u64, edit: impl FnOnce(&mut ChunkHeader)) -> [Item; 1] {
    let mut stripes = 0;
    let mut data = bytes::<ChunkHeader>(|header| {
        header.length = (1 << 30).into();
        header.owner = 2.into();
        header.stripe_len = 65536.into();
        header.flags = DATA.into();
        header.io_align = 65536.into();
        header.io_width = 65536.into();
        header.sector_size = 4096.into();
        header.num_stripes = 1.into();
        header.sub_stripes = 1.into();
        edit(header);
        stripes = usize::from(header.num_stripes.get());
    });
    data.resize(data.len() + stripes * 32, 1);
    [(key(256, ItemType::CHUNK_ITEM, start), data)]
}

fn chunk(edit: impl FnOnce(&mut ChunkHeader)) -> [Item; 1] {
    chunk_at(START, edit)
}

fn striped(flags: u64, num_stripes: u16) -> [Item; 1] {
    let sub_stripes: u16 = if flags & RAID10 != 0 { 2 } else { 1 };
    chunk(|header| {
        header.flags = flags.into();
        header.num_stripes = num_stripes.into();
        header.sub_stripes = sub_stripes.into();
    })
}

fn chunk_cases() -> Vec<Case> {
    let resized = |len: usize| {
        let [(key, mut data)] = chunk(|_| {});
        data.resize(len, 0);
        [(key, data)]
    };
    let good = [
        (SYSTEM | DUP, 2),
        (METADATA | RAID1, 2),
        (METADATA | RAID1C3, 3),
        (METADATA | RAID1C4, 4),
        (DATA | RAID0, 1),
        (DATA | RAID0, 5),
        (DATA | RAID10, 4),
        (DATA | RAID10, 2),
        (DATA | RAID5, 2),
        (DATA | RAID6, 3),
        (DATA | RAID6, 7),
    ];
    let bad = [
        ("2 stripes do not make single", DATA, 2),
        ("1 stripes do not make dup", DATA | DUP, 1),
        ("3 stripes do not make dup", DATA | DUP, 3),
        ("3 stripes do not make raid1", DATA | RAID1, 3),
        ("2 stripes do not make raid1c3", DATA | RAID1C3, 2),
        ("5 stripes do not make raid1c4", DATA | RAID1C4, 5),
        ("1 stripes do not make raid10", DATA | RAID10, 1),
        ("1 stripes do not make raid5", DATA | RAID5, 1),
        ("2 stripes do not make raid6", DATA | RAID6, 2),
        ("no or contradictory types", RAID0, 1),
        ("no or contradictory types", SYSTEM | DATA, 1),
        ("without the feature MIXED_GROUPS", METADATA | DATA, 1),
        ("several profiles", DATA | DUP | RAID1, 2),
        ("unknown bits", DATA | 1 << 20, 1),
    ];
    let edges = vec![
        sound("chunk", chunk(|_| {})),
        sound(
            "chunk under another objectid",
            [(key(9, ItemType::CHUNK_ITEM, START), chunk(|_| {})[0].1.clone())],
        ),
        wrong("ChunkHeader needs 48 bytes but 47", resized(47)),
        wrong("chunk takes 80 bytes but the item has 79", resized(79)),
        wrong("chunk takes 80 bytes but the item has 112", resized(112)),
        wrong("num_stripes is 0", chunk(|header| header.num_stripes = 0.into())),
        wrong("from 1073741825 are no range", chunk_at(START + 1, |_| {})),
        wrong("0 bytes from", chunk(|header| header.length = 0.into())),
        wrong("4097 bytes from", chunk(|header| header.length = 4097.into())),
        wrong("ends past 2^64", chunk_at(0_u64.wrapping_sub(4096), |_| {})),
        wrong("281474976645120 bytes are too many", {
            chunk(|header| header.length = (u64::from(u32::MAX) << 16).into())
        }),
        wrong("sector_size 512", chunk(|header| header.sector_size = 512.into())),
        wrong("stripe_len 32768", chunk(|header| header.stripe_len = 32768.into())),
        wrong(
            "sub_stripes 1 do not make raid10",
            chunk(|header| {
                header.flags = (DATA | RAID10).into();
                header.num_stripes = 4.into();
            }),
        ),
    ];
    let good = good.into_iter().map(|(flags, stripes)| {
        sound(&format!("chunk {flags:#x} of {stripes} stripes"), striped(flags, stripes))
    });
    let bad =
        bad.into_iter().map(|(problem, flags, stripes)| wrong(problem, striped(flags, stripes)));
    edges.into_iter().chain(good).chain(bad).collect()
}

fn device(edit: impl FnOnce(&mut DevItem)) -> Vec<u8> {
    bytes::<DevItem>(|item| {
        item.devid = 1.into();
        item.total_bytes = 100.into();
        item.bytes_used = 100.into();
        edit(item);
    })
}

fn device_cases() -> Vec<Case> {
    let at = |objectid, offset, data| [(key(objectid, ItemType::DEV_ITEM, offset), data)];
    vec![
        sound("device", at(1, 1, device(|_| {}))),
        wrong("a device under another objectid", at(2, 1, device(|_| {}))),
        wrong("DevItem takes 98 bytes", at(1, 1, vec![0; 97])),
        wrong("says that it is 1", at(1, 2, device(|_| {}))),
        wrong("101 bytes used of 100", at(1, 1, device(|item| item.bytes_used = 101.into()))),
    ]
}

fn dev_extent_at(start: u64, edit: impl FnOnce(&mut DevExtent)) -> [Item; 1] {
    let data = bytes::<DevExtent>(|extent| {
        extent.chunk_tree = 3.into();
        extent.chunk_objectid = 256.into();
        extent.chunk_offset = START.into();
        extent.length = (1 << 20).into();
        edit(extent);
    });
    [(key(1, ItemType::DEV_EXTENT, start), data)]
}

fn dev_extent_cases() -> Vec<Case> {
    let extent = |edit: fn(&mut DevExtent)| dev_extent_at(1 << 20, edit);
    let [(at, data)] = extent(|_| {});
    let too_long = [(at, [data, vec![0]].concat())];
    let two = |start| [dev_extent_at(1 << 20, |_| {}), dev_extent_at(start, |_| {})].concat();
    vec![
        sound("device extents", two(2 << 20)),
        wrong("starts before the one before it ends at 2097152", two((2 << 20) - 4096)),
        wrong("DevExtent takes 48 bytes", [(key(1, ItemType::DEV_EXTENT, 0), vec![0; 47])]),
        wrong("DevExtent takes 48 bytes", too_long).stricter_than_kernel(),
        wrong("of the chunk tree (4, 256)", extent(|extent| extent.chunk_tree = 4.into())),
        wrong("of the chunk tree (3, 1)", extent(|extent| extent.chunk_objectid = 1.into())),
        wrong("bytes from 1048577 for chunk", dev_extent_at((1 << 20) + 1, |_| {})),
        sound("empty device extent", extent(|extent| extent.length = 0.into())),
        wrong("100 bytes from", extent(|extent| extent.length = 100.into())),
        wrong("for chunk 5", extent(|extent| extent.chunk_offset = 5.into())),
    ]
}

fn group(len: u64, used: u64, flags: u64) -> [Item; 1] {
    let data = bytes::<BlockGroupItem>(|group| {
        group.used = used.into();
        group.chunk_objectid = 256.into();
        group.flags = flags.into();
    });
    [(key(START, ItemType::BLOCK_GROUP_ITEM, len), data)]
}

fn block_group_cases() -> Vec<Case> {
    let full = 1 << 20;
    let at = key(START, ItemType::BLOCK_GROUP_ITEM, full);
    let other_chunks = bytes::<BlockGroupItem>(|group| group.flags = DATA.into());
    vec![
        sound("full block group", group(full, full, DATA | RAID1)),
        sound("mixed block group", group(full, 0, DATA | METADATA)),
        sound("block group of a profile to come", group(full, 0, DATA | 1 << 11)),
        wrong("a block group of 0 bytes", group(0, 0, DATA)),
        wrong("1048577 bytes used of 1048576", group(full, full + 1, DATA)),
        wrong("several profiles", group(full, 0, DATA | RAID0 | RAID1)),
        wrong("no or contradictory types", group(full, 0, 0)),
        wrong("no or contradictory types", group(full, 0, SYSTEM | METADATA)),
        wrong("chunk_objectid 0", [(at, other_chunks)]),
        wrong("BlockGroupItem takes 24 bytes", [(at, vec![0; 23])]),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    [chunk_cases(), device_cases(), dev_extent_cases(), block_group_cases()]
        .into_iter()
        .flatten()
        .collect()
}
