use larder_format::ItemType;
use larder_format::item::{InodeExtrefHeader, InodeItem, InodeRefHeader};
use larder_format::objectid::ORPHAN;

use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

pub(super) fn inode(edit: impl FnOnce(&mut InodeItem)) -> Item {
    let data = bytes::<InodeItem>(|inode| {
        inode.generation = 1.into();
        inode.transid = 1.into();
        inode.nlink = 1.into();
        inode.mode = 0o100_644.into();
        edit(inode);
    });
    (key(257, ItemType::INODE_ITEM, 0), data)
}

fn reference(name_len: u16, name: &[u8]) -> Vec<u8> {
    let mut data = bytes::<InodeRefHeader>(|header| header.name_len = name_len.into());
    data.extend(name);
    data
}

fn extended_reference(name_len: u16, name: &[u8]) -> Vec<u8> {
    let mut data = bytes::<InodeExtrefHeader>(|header| header.name_len = name_len.into());
    data.extend(name);
    data
}

fn with_reference(data: Vec<u8>) -> [Item; 2] {
    [inode(|_| {}), (key(257, ItemType::INODE_REF, 256), data)]
}

fn with_extended_reference(data: Vec<u8>) -> [Item; 2] {
    [inode(|_| {}), (key(257, ItemType::INODE_EXTREF, 77), data)]
}

fn with_mode(mode: u32) -> [Item; 1] {
    [inode(|inode| inode.mode = mode.into())]
}

fn at(objectid: u64, offset: u64) -> [Item; 1] {
    [(key(objectid, ItemType::INODE_ITEM, offset), inode(|_| {}).1)]
}

pub(super) fn cases() -> Vec<Case> {
    let alone = (key(258, ItemType::INODE_REF, 256), reference(3, b"jam"));
    let all_flags = 0x1_8000_0fff_u64;
    let two = [reference(3, b"jam"), reference(5, b"honey")].concat();
    vec![
        sound("inode", [inode(|_| {})]),
        sound("inode of the root tree's directory", at(6, 0)),
        sound("inode of the inode cache", at(-12_i64 as u64, 0)),
        sound("last inode", at(-256_i64 as u64, 0)),
        wrong("255 is no inode number", at(255, 0)),
        wrong("18446744073709551361 is no inode number", at(-255_i64 as u64, 0)),
        wrong("an inode's key (257 INODE_ITEM 1) has an offset", at(257, 1)),
        wrong("161 bytes", [(inode(|_| {}).0, [&inode(|_| {}).1[..], &[0]].concat())]),
        wrong("159 bytes", [(inode(|_| {}).0, inode(|_| {}).1[1..].to_vec())]),
        sound("symlink", with_mode(0o120_777)),
        sound("socket", with_mode(0o140_777)),
        sound("block device", with_mode(0o60_777)),
        sound("set-user-id, set-group-id, sticky", with_mode(0o107_777)),
        wrong("mode 0 is of", with_mode(0)),
        wrong("mode 777 is of", with_mode(0o777)),
        wrong("mode 70644 is of", with_mode(0o70_644)),
        wrong("mode 160644 is of", with_mode(0o160_644)),
        wrong("mode 1100644 is of", with_mode(0o1_100_644)),
        wrong("a directory with 2 links", {
            [inode(|inode| (inode.mode, inode.nlink) = (0o40_755.into(), 2.into()))]
        }),
        sound("every flag that is known", [inode(|inode| inode.flags = all_flags.into())]),
        wrong("unknown flags in 0x1000", [inode(|inode| inode.flags = 0x1000.into())]),
        wrong("unknown flags in 0x4000", [inode(|inode| inode.flags = 0x4000_0000.into())]),
        sound("unknown flag of the upper half", [inode(|i| i.flags = (1 << 40).into())]),
        sound("reference", with_reference(reference(3, b"jam"))),
        sound("two references", with_reference(two)),
        sound("reference to the longest name", with_reference(reference(255, &[b'a'; 255]))),
        wrong("names nothing", with_reference(vec![])),
        wrong("InodeRefHeader needs 10 bytes but 4", with_reference(vec![0; 4])),
        wrong("name needs 4 bytes but 3", with_reference(reference(4, b"jam"))),
        wrong("InodeRefHeader needs 10 bytes but 1", with_reference(reference(2, b"jam"))),
        wrong("a name of 0 bytes", with_reference(reference(0, b""))),
        wrong("a name of 0 bytes", {
            with_reference([reference(3, b"jam"), reference(0, b"")].concat())
        }),
        wrong("a name of 256 bytes", with_reference(reference(256, &[b'a'; 256]))),
        wrong("belongs to inode 258 but follows", [inode(|_| {}), alone.clone()]).in_top_level(),
        sound("inode in part, in another tree", [inode(|_| {}), alone]),
        sound("extended reference", with_extended_reference(extended_reference(3, b"jam"))),
        sound("extended reference to nothing", with_extended_reference(vec![])),
        wrong("name needs 4 bytes but 3", with_extended_reference(extended_reference(4, b"jam"))),
        wrong("InodeExtrefHeader needs 18 bytes but 2", {
            with_extended_reference(extended_reference(1, b"jam"))
        }),
        sound("extended reference without name", {
            with_extended_reference(extended_reference(0, b""))
        }),
        sound("extended reference to a name that is too long", {
            with_extended_reference(extended_reference(256, &[b'a'; 256]))
        }),
        sound("orphan", [(key(ORPHAN, ItemType::ORPHAN_ITEM, 300), vec![])]),
        wrong("1 bytes where 0 belong", [(key(ORPHAN, ItemType::ORPHAN_ITEM, 300), vec![0])])
            .stricter_than_kernel(),
        sound(
            "verity descriptor",
            [
                (key(257, ItemType::VERITY_DESC_ITEM, 0), vec![0; 25]),
                (key(257, ItemType::VERITY_DESC_ITEM, 1), vec![0; 256]),
            ],
        ),
        wrong("24 bytes where 25", [(key(257, ItemType::VERITY_DESC_ITEM, 0), vec![0; 24])])
            .stricter_than_kernel(),
    ]
}
