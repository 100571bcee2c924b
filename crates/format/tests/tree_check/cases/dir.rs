use larder_format::item::DirItemHeader;
use larder_format::{ItemType, Key, name_hash};

use super::inode::inode;
use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

struct Entry {
    location: Key,
    file_type: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let mut data = bytes::<DirItemHeader>(|header| {
            header.location = self.location.into();
            header.file_type = self.file_type;
            header.name_len = (self.name.len() as u16).into();
            header.data_len = (self.value.len() as u16).into();
        });
        data.extend(&self.name);
        data.extend(&self.value);
        data
    }
}

fn file(edit: impl FnOnce(&mut Entry)) -> Entry {
    let location = key(258, ItemType::INODE_ITEM, 0);
    let mut entry = Entry { location, file_type: 1, name: b"bread".to_vec(), value: vec![] };
    edit(&mut entry);
    entry
}

fn attribute(edit: impl FnOnce(&mut Entry)) -> Entry {
    let (name, value) = (b"user.spread".to_vec(), b"butter".to_vec());
    let mut entry = Entry { location: Key::MIN, file_type: 8, name, value };
    edit(&mut entry);
    entry
}

fn under(item_type: ItemType, entry: &Entry) -> [Item; 1] {
    [(key(257, item_type, name_hash::dir_name(&entry.name)), entry.bytes())]
}

fn item(edit: impl FnOnce(&mut Entry)) -> [Item; 1] {
    under(ItemType::DIR_ITEM, &file(edit))
}

fn xattr(edit: impl FnOnce(&mut Entry)) -> [Item; 1] {
    under(ItemType::XATTR_ITEM, &attribute(edit))
}

fn pointing_at(objectid: u64, item_type: ItemType, offset: u64) -> [Item; 1] {
    item(|entry| entry.location = key(objectid, item_type, offset))
}

/// One byte more or less than the entries take.
fn resized(change: impl FnOnce(&mut Vec<u8>)) -> [Item; 1] {
    let [(key, mut data)] = item(|_| {});
    change(&mut data);
    [(key, data)]
}

pub(super) fn cases() -> Vec<Case> {
    let hash = name_hash::dir_name(b"bread");
    let bread = file(|_| {}).bytes();
    // The space in a leaf, except its header, an item's and the entry's.
    let most = 16384 - 101 - 25 - 30 - b"user.spread".len();
    vec![
        sound("directory item", item(|_| {})),
        sound(
            "two names of one hash",
            [(key(257, ItemType::DIR_ITEM, hash), [bread.clone(), bread.clone()].concat())],
        ),
        sound("directory index", [(key(257, ItemType::DIR_INDEX, 2), bread.clone())]),
        sound("encrypted name", item(|entry| entry.file_type = 0x81)),
        sound("no entry at all", [(key(257, ItemType::DIR_ITEM, 5), vec![])]),
        sound("subvolume", pointing_at(300, ItemType::ROOT_ITEM, u64::MAX)),
        sound("location of type 0", pointing_at(258, ItemType(0), 0)),
        wrong("has another hash", [(key(257, ItemType::DIR_ITEM, hash + 1), bread.clone())]),
        wrong("file type 0", item(|entry| entry.file_type = 0)),
        wrong("file type 9", item(|entry| entry.file_type = 9)),
        wrong("of file type 8 under a key of type DIR_ITEM", item(|entry| entry.file_type = 8)),
        wrong("of file type 1 under a key of type XATTR_ITEM", xattr(|xattr| xattr.file_type = 1)),
        wrong("neither inode nor subvolume", pointing_at(258, ItemType::INODE_REF, 0)),
        wrong("10 is no inode number", pointing_at(10, ItemType::INODE_ITEM, 0)),
        wrong("has an offset", pointing_at(258, ItemType::INODE_ITEM, 4)),
        wrong("tree 0", pointing_at(0, ItemType::ROOT_ITEM, u64::MAX)),
        wrong("points at tree 2, which", pointing_at(2, ItemType::ROOT_ITEM, u64::MAX)),
        wrong("points at tree 281474976710656", pointing_at(1 << 48, ItemType::ROOT_ITEM, 0)),
        wrong("a value where only attributes", item(|entry| entry.value = vec![1])),
        wrong("a name of 256 bytes", item(|entry| entry.name = vec![b'a'; 256])),
        wrong("DirItemHeader needs 30 bytes but 1", resized(|data| data.push(0))),
        wrong("name needs 5 bytes but 4", resized(|data| data.truncate(data.len() - 1))),
        sound("attribute", xattr(|_| {})),
        sound("attribute without value", xattr(|xattr| xattr.value.clear())),
        sound("attribute without name", xattr(|xattr| xattr.name.clear())),
        sound("largest attribute", xattr(|xattr| xattr.value = vec![1; most])),
        wrong(
            "an attribute that points at",
            xattr(|xattr| xattr.location = Key::new(258, ItemType::INODE_ITEM, 0)),
        ),
        wrong("has another hash", [(key(257, ItemType::XATTR_ITEM, 1), attribute(|_| {}).bytes())]),
        wrong(
            "belongs to inode 258 but follows",
            [inode(|_| {}), (key(258, ItemType::DIR_INDEX, 2), bread.clone())],
        )
        .in_top_level(),
        sound("range of a log", [(key(257, ItemType::DIR_LOG_INDEX, 2), vec![9; 8])]),
        wrong("7 bytes where 8 belong", [(key(257, ItemType::DIR_LOG_INDEX, 2), vec![9; 7])])
            .stricter_than_kernel(),
        wrong("the log of no directory", [(key(7, ItemType::DIR_LOG_ITEM, 2), vec![9; 8])])
            .stricter_than_kernel(),
    ]
}
