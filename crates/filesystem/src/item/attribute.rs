//! Extended attributes in the form of items.

use larder_format::item::{DirEntry, DirItemHeader, FileType as EntryType};
use larder_format::{ItemType, Key, name_hash};

/// An attribute in the form of its item.
pub(crate) fn attribute(generation: u64, name: &[u8], value: &[u8]) -> Vec<u8> {
    let header = DirItemHeader {
        location: Key::MIN.into(),
        transid: generation.into(),
        data_len: (value.len() as u16).into(),
        name_len: (name.len() as u16).into(),
        file_type: EntryType::Xattr as u8,
    };
    let mut bytes = Vec::new();
    DirEntry { header: &header, name, data: value }.write(&mut bytes);
    bytes
}

/// The item of an extended attribute that is the only one of its hash.
pub(crate) fn attribute_item(
    number: u64,
    generation: u64,
    name: &[u8],
    value: &[u8],
) -> (Key, Vec<u8>) {
    let key = Key::new(number, ItemType::XATTR_ITEM, name_hash::dir_name(name));
    (key, attribute(generation, name, value))
}
