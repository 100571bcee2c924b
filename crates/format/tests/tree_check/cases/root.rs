use larder_format::ItemType;
use larder_format::item::{RootItem, RootRefHeader};
use larder_format::objectid::TREE_RELOC;

use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

fn root(edit: impl FnOnce(&mut RootItem)) -> Vec<u8> {
    bytes::<RootItem>(|item| {
        item.generation = 1.into();
        item.generation_v2 = 1.into();
        item.bytenr = (1 << 24).into();
        item.refs = 1.into();
        edit(item);
    })
}

fn edited(edit: impl FnOnce(&mut RootItem)) -> [Item; 1] {
    at(256, 0, root(edit))
}

fn at(objectid: u64, offset: u64, data: Vec<u8>) -> [Item; 1] {
    [(key(objectid, ItemType::ROOT_ITEM, offset), data)]
}

fn reference(name_len: u16, name: &[u8]) -> [Item; 1] {
    let mut data = bytes::<RootRefHeader>(|header| header.name_len = name_len.into());
    data.extend(name);
    [(key(5, ItemType::ROOT_REF, 256), data)]
}

pub(super) fn cases() -> Vec<Case> {
    let uuid = |len| [(key(1, ItemType::UUID_KEY_SUBVOL, 2), vec![0; len])];
    vec![
        sound("root", edited(|_| {})),
        sound("old short root", at(5, 0, root(|_| {})[..239].to_vec())),
        sound("snapshot", at(256, 7, root(|_| {}))),
        sound("relocation of a tree", at(TREE_RELOC, 5, root(|_| {}))),
        sound(
            "deleted",
            edited(|item| {
                item.refs = 0.into();
                item.flags = (1 << 48).into();
                item.drop_level = 1;
                item.drop_progress = key(257, ItemType::INODE_ITEM, 0).into();
            }),
        ),
        wrong("tree 0", at(0, 0, root(|_| {}))),
        wrong("relocates tree 0", at(TREE_RELOC, 0, root(|_| {}))),
        wrong("438 bytes", at(5, 0, root(|_| {})[..438].to_vec())),
        wrong("root address 4097 is not a multiple", edited(|item| item.bytenr = 4097.into())),
        wrong("level 8 is over 7", edited(|item| item.level = 8)),
        wrong("drop_level 8 is over 7", edited(|item| item.drop_level = 8)),
        wrong("unknown flags in 0x2", edited(|item| item.flags = 2.into())),
        sound("subvolume's name", reference(3, b"jam")),
        wrong("RootRef takes 22 bytes", reference(4, b"jam")),
        wrong("a name of 0 bytes", reference(0, b"")),
        wrong("a name of 256 bytes", reference(256, &[b'a'; 256])),
        sound("uuid", uuid(16)),
        wrong("9 bytes are no whole number of ids", uuid(9)).stricter_than_kernel(),
    ]
}
