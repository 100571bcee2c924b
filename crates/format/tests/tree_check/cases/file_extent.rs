use larder_format::ItemType;
use larder_format::item::{FileExtentHeader, FileExtentItem};
use larder_format::objectid::EXTENT_CSUM;
use zerocopy::FromBytes;

use super::inode::inode;
use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

fn regular(edit: impl FnOnce(&mut FileExtentItem)) -> Vec<u8> {
    bytes::<FileExtentItem>(|item| {
        item.header.generation = 1.into();
        item.header.ram_bytes = 8192.into();
        item.header.kind = 1;
        item.extent.disk_bytenr = (1 << 30).into();
        item.extent.disk_num_bytes = 8192.into();
        item.extent.num_bytes = 8192.into();
        edit(item);
    })
}

fn inline(len: usize, edit: impl FnOnce(&mut FileExtentHeader)) -> Vec<u8> {
    let mut data = bytes::<FileExtentHeader>(|header| {
        header.generation = 1.into();
        header.ram_bytes = (len as u64).into();
        edit(header);
    });
    data.resize(data.len() + len, 1);
    data
}

fn at(offset: u64, data: Vec<u8>) -> Item {
    (key(257, ItemType::EXTENT_DATA, offset), data)
}

fn edited(edit: impl FnOnce(&mut FileExtentItem)) -> [Item; 1] {
    [at(4096, regular(edit))]
}

fn csums(offset: u64, len: usize) -> Item {
    (key(EXTENT_CSUM, ItemType::EXTENT_CSUM, offset), vec![1; len])
}

pub(super) fn cases() -> Vec<Case> {
    let other_objectid = (key(7, ItemType::EXTENT_CSUM, 4096), vec![0; 4]);
    let of_another = (key(258, ItemType::EXTENT_DATA, 0), regular(|_| {}));
    let last = 0_u64.wrapping_sub(4096);
    let mut unknown_kind = regular(|_| {});
    FileExtentHeader::mut_from_prefix(&mut unknown_kind).expect("long enough").0.kind = 3;
    vec![
        sound("regular", edited(|_| {})),
        sound("hole", edited(|item| item.extent.disk_bytenr = 0.into())),
        sound("neighbours", [at(0, regular(|_| {})), at(8192, regular(|_| {}))]),
        sound("preallocated", edited(|item| item.header.kind = 2)),
        sound("more bytes on disk than in memory", edited(|i| i.header.ram_bytes = 4096.into())),
        sound("beyond the extent", edited(|item| item.extent.offset = (1 << 20).into())),
        sound("covers nothing", edited(|item| item.extent.num_bytes = 0.into())),
        wrong("file offset 4097 is not a multiple", [at(4097, regular(|_| {}))]),
        wrong("belongs to inode 258 but follows", [inode(|_| {}), of_another]).in_top_level(),
        wrong("FileExtentHeader needs 21 bytes but 20", [at(0, vec![0; 20])]),
        wrong("unknown type 3", [at(0, unknown_kind)]),
        wrong(
            "FileExtentItem takes 53 bytes but the item has 52",
            [at(0, regular(|_| {})[..52].to_vec())],
        ),
        wrong(
            "FileExtentItem takes 53 bytes but the item has 54",
            [at(0, [regular(|_| {}), vec![0]].concat())],
        ),
        sound("zstd", edited(|item| item.header.compression = 3)),
        wrong("unknown compression 4", edited(|item| item.header.compression = 4)),
        wrong("unknown encryption 1", edited(|item| item.header.encryption = 1)),
        wrong("ram_bytes 1 is not", edited(|item| item.header.ram_bytes = 1.into())),
        wrong("disk_bytenr 512 is not", edited(|item| item.extent.disk_bytenr = 512.into())),
        wrong("disk_num_bytes 10 is not", edited(|item| item.extent.disk_num_bytes = 10.into())),
        wrong("offset 5 is not", edited(|item| item.extent.offset = 5.into())),
        wrong("num_bytes 4095 is not", edited(|item| item.extent.num_bytes = 4095.into())),
        wrong("ends past 2^64", [at(last, regular(|_| {}))]),
        wrong(
            "starts before the one before it ends at 8192",
            [at(0, regular(|_| {})), at(4096, regular(|_| {}))],
        ),
        sound("inline", [at(0, inline(100, |_| {}))]),
        sound("inline and empty", [at(0, inline(0, |_| {}))]),
        sound(
            "inline, compressed, longer than it is",
            [at(
                0,
                inline(100, |header| {
                    (header.compression, header.ram_bytes) = (1, 3000.into());
                }),
            )],
        ),
        sound("inline, then regular", [at(0, inline(100, |_| {})), at(4096, regular(|_| {}))]),
        wrong("inline data at file offset 4096", [at(4096, inline(100, |_| {}))]),
        wrong("100 bytes of inline data that say they are 99", {
            [at(0, inline(100, |header| header.ram_bytes = 99.into()))]
        }),
        wrong("starts before the one before it ends at 8192", {
            [at(0, inline(5000, |_| {})), at(4096, regular(|_| {}))]
        }),
        sound("checksums", [csums(4096, 4), csums(8192, 4), csums(16384, 400)]),
        sound("no checksums", [csums(4096, 0)]),
        wrong("checksums under another objectid", [other_objectid]),
        wrong("address 4097 is not a multiple", [csums(4097, 4)]),
        wrong("5 bytes are no whole number", [csums(4096, 5)]),
        wrong("starts before the one before it ends at 12288", [csums(4096, 8), csums(8192, 4)]),
    ]
}
