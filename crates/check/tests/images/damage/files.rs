//! Inodes, names and file extents.

use larder_check::Kind;
use larder_format::item::{
    ExtentItem, FileExtent, FileExtentHeader, FileExtentItem, InodeItem, RegularExtent,
};
use larder_format::objectid::{EXTENT_TREE, FS_TREE, ORPHAN};
use larder_format::{ItemType, Key, name_hash, read_prefix};

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::{Found, Patient};

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
/// The type of a preallocated file extent.
const PREALLOCATED: u8 = 2;

/// The first inode of a type (as in a mode) beyond the top directory.
fn inode(patient: &Patient, file_type: u32) -> Found {
    patient.find(FS_TREE, |key, data| {
        key.item_type == ItemType::INODE_ITEM
            && key.objectid > 256
            && u32::from_le_bytes(data[52..56].try_into().expect("four bytes")) & 0o170_000
                == file_type
    })
}

/// A file extent for which `is_wanted` holds.
fn extent(patient: &Patient, is_wanted: impl Fn(&FileExtent<'_>) -> bool) -> Found {
    let mut items = patient.items(FS_TREE).into_iter();
    let found = items.find(|found| {
        found.key.item_type == ItemType::EXTENT_DATA
            && found.slot > 0
            && FileExtent::parse(&found.data).is_ok_and(|extent| is_wanted(&extent))
    });
    found.expect("the image has such an extent")
}

fn regular(patient: &Patient) -> Found {
    extent(patient, |extent| {
        matches!(extent, FileExtent::Regular { extent, preallocated: false, .. }
            if extent.disk_bytenr().is_some() && extent.offset.get() == 0)
    })
}

/// Whether nothing else refers to the data that a file extent refers to.
fn has_one_reference(patient: &Patient, extent: &RegularExtent) -> bool {
    let start = extent.disk_bytenr.get();
    start != 0
        && patient.items(EXTENT_TREE).iter().any(|found| {
            found.key == Key::new(start, ItemType::EXTENT_ITEM, extent.disk_num_bytes.get())
                && read_prefix::<ExtentItem>(&found.data)
                    .is_ok_and(|(item, _)| item.refs.get() == 1)
        })
}

/// The last entry by index that names a file.
fn index(patient: &Patient) -> Found {
    let mut items = patient.items(FS_TREE).into_iter().rev();
    let found = items.find(|found| {
        found.key.item_type == ItemType::DIR_INDEX
            && found.slot > 0
            && found.data[8] == ItemType::INODE_ITEM.0
    });
    found.expect("a directory")
}

/// The first reference of an inode other than the top directory.
fn reference(patient: &Patient) -> Found {
    let mut items = patient.items(FS_TREE).into_iter();
    let found = items.find(|found| {
        found.key.item_type == ItemType::INODE_REF && found.slot > 0 && found.key.objectid > 256
    });
    found.expect("a file")
}

/// Two entries by index of one directory that name files. The first has a long name, not shorter
/// than the other's, and the only name of its inode there. All items with that name are in one
/// leaf, so that there is room for another, and a snapshot has all of them or none.
fn siblings(patient: &Patient) -> (Found, Found) {
    let items = patient.items(FS_TREE);
    let is_all_in = |leaf: u64, entry: &Found| {
        let directory = entry.key.objectid;
        let target = u64::from_le_bytes(entry.data[..8].try_into().expect("eight bytes"));
        let own = Key::new(target, ItemType::INODE_REF, directory);
        let mut knowing = items.iter().filter(|found| {
            let Key { objectid, item_type, .. } = found.key;
            let of_directory = [ItemType::INODE_ITEM, ItemType::DIR_ITEM].contains(&item_type);
            (objectid == directory && of_directory) || found.key == own
        });
        let has_one_name = |found: &Found| found.data.len() - 10 == entry.data.len() - 30;
        knowing.all(|found| found.leaf == leaf && (found.key != own || has_one_name(found)))
    };
    let entries = items.iter().filter(|found| {
        found.key.item_type == ItemType::DIR_INDEX && found.data[8] == ItemType::INODE_ITEM.0
    });
    let entries: Vec<&Found> = entries.collect();
    let pair = entries.windows(2).find(|pair| {
        pair[0].key.objectid == pair[1].key.objectid
            && pair[0].data.len() >= 30 + 7
            && pair[0].data.len() >= pair[1].data.len()
            && is_all_in(pair[0].leaf, pair[0])
    });
    let pair = pair.expect("the image has such a directory");
    (pair[0].clone(), pair[1].clone())
}

/// Gives an entry of a file another name, in all items.
fn rename(patient: &Patient, name: &[u8]) {
    let (by_index, _) = siblings(patient);
    let old = by_index.data[30..].to_vec();
    let (directory, number) = (by_index.key.objectid, by_index.key.offset);
    let target = u64::from_le_bytes(by_index.data[..8].try_into().expect("eight bytes"));
    let renamed = |data: &[u8]| {
        let mut data = [&data[..30], name].concat();
        data[27..29].copy_from_slice(&(name.len() as u16).to_le_bytes());
        data
    };
    patient.edit(&by_index, |data| *data = renamed(data));
    let key_of = |name| Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(name));
    let by_hash = patient.find(FS_TREE, |key, data| *key == key_of(&old) && data[30..] == old);
    patient.remove(&by_hash);
    let mut items = patient.items(FS_TREE).into_iter();
    match items.find(|found| found.key == key_of(name)) {
        Some(same) => patient.edit(&same, |data| data.extend(renamed(&by_hash.data))),
        None => patient.insert(FS_TREE, key_of(name), &renamed(&by_hash.data)),
    }
    let reference = patient.find(FS_TREE, |key, data| {
        *key == Key::new(target, ItemType::INODE_REF, directory)
            && data[..8] == number.to_le_bytes()
    });
    patient.edit(&reference, |data| {
        *data = [&data[..8], &(name.len() as u16).to_le_bytes(), name].concat();
    });
    let inode =
        patient.find(FS_TREE, |key, _| *key == Key::new(directory, ItemType::INODE_ITEM, 0));
    patient.edit_as::<InodeItem>(&inode, |item| {
        item.size = (item.size.get() + 2 * name.len() as u64 - 2 * old.len() as u64).into();
    });
}

pub(super) fn wounds() -> Vec<Wound> {
    let mut wounds = inodes();
    wounds.extend(names());
    wounds.extend(extents());
    wounds
}

fn inodes() -> Vec<Wound> {
    vec![
        plain("the link count of a file", Kind::LinkCount, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| item.nlink += 1);
        }),
        plain("the size of a directory", Kind::DirectorySize, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, DIRECTORY), |item| item.size += 2);
        }),
        plain("an inode is gone", Kind::InodeMissing, Sees, |patient| {
            patient.remove(&patient.find_type(FS_TREE, ItemType::INODE_ITEM));
        }),
        plain("the mode of an inode", Kind::InodeItem, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| item.mode |= 0o170_000);
        }),
        plain("the generation of an inode", Kind::InodeItem, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| {
                item.generation += 1 << 32;
            });
        }),
        plain("an inode item that is too short", Kind::ItemFormat, DoesNot, |patient| {
            let inode = patient.find_type(FS_TREE, ItemType::INODE_ITEM);
            patient.edit(&inode, |data| data.truncate(100));
        }),
        plain("the key of an inode item", Kind::ItemKey, DoesNot, |patient| {
            let inode = patient.find_type(FS_TREE, ItemType::INODE_ITEM);
            patient.rekey(&inode, Key { offset: 1, ..inode.key });
        }),
        plain("an inode without names is not listed", Kind::OrphanMissing, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| item.nlink = 0.into());
        }),
        on(Base::PowerCut, "an orphan item is gone", Kind::OrphanMissing, Sees, |patient| {
            let is_orphan = |key: &Key, _: &[u8]| {
                key.objectid == ORPHAN && key.item_type == ItemType::ORPHAN_ITEM
            };
            patient.remove(&patient.find(FS_TREE, is_orphan));
        }),
        plain("a file extent of a directory", Kind::WrongInodeType, Sees, |patient| {
            let hole = FileExtentItem::of_hole(4096);
            let directory = inode(patient, DIRECTORY).key.objectid;
            patient.insert(FS_TREE, Key::new(directory, ItemType::EXTENT_DATA, 0), &hole);
        }),
        plain("a time of two thousand million nanoseconds", Kind::InodeItem, DoesNot, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| {
                item.mtime.nsec = 2_000_000_000.into();
            });
        }),
        plain("a symbolic link that is immutable", Kind::InodeItem, Sees, |patient| {
            let link = inode(patient, SYMLINK);
            patient.edit_as::<InodeItem>(&link, |item| item.flags |= 1 << 6);
        }),
        plain("a symbolic link that only grows", Kind::InodeItem, Sees, |patient| {
            let link = inode(patient, SYMLINK);
            patient.edit_as::<InodeItem>(&link, |item| item.flags |= 1 << 7);
        }),
        plain("the size of a symbolic link", Kind::Symlink, DoesNot, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, SYMLINK), |item| item.size += 1);
        }),
    ]
}

fn names() -> Vec<Wound> {
    vec![
        plain("an entry by hash is gone", Kind::DirectoryItems, Sees, |patient| {
            patient.remove(&patient.find_type(FS_TREE, ItemType::DIR_ITEM));
        }),
        plain("an entry by index is gone", Kind::ReferenceWithoutEntry, Sees, |patient| {
            patient.remove(&index(patient));
        }),
        plain("an inode reference is gone", Kind::EntryWithoutReference, Sees, |patient| {
            patient.remove(&reference(patient));
        }),
        plain("an entry leads to no inode", Kind::EntryDangling, Sees, |patient| {
            patient.edit(&index(patient), |data| data[5] ^= 0x40);
        }),
        plain("a name in an entry by hash", Kind::NameHash, Sees, |patient| {
            patient.edit(&patient.find_type(FS_TREE, ItemType::DIR_ITEM), |data| data[30] ^= 1);
        }),
        plain("a name in an extended attribute", Kind::NameHash, DoesNot, |patient| {
            patient.edit(&patient.find_type(FS_TREE, ItemType::XATTR_ITEM), |data| data[35] ^= 1);
        }),
        plain("the index in an inode reference", Kind::EntryWithoutReference, Sees, |patient| {
            patient.edit(&reference(patient), |data| data[1] ^= 1);
        }),
        plain("the name of the top directory", Kind::ItemFormat, Sees, |patient| {
            let own =
                patient.find(FS_TREE, |key, _| *key == Key::new(256, ItemType::INODE_REF, 256));
            patient.edit(&own, |data| data[0] = 3);
        }),
        plain("the file type in both entries", Kind::EntryType, Sees, |patient| {
            let by_index = index(patient);
            let name = by_index.data[30..].to_vec();
            let by_hash = patient.find(FS_TREE, |key, data| {
                key.item_type == ItemType::DIR_ITEM
                    && key.objectid == by_index.key.objectid
                    && data.len() > 30
                    && data[30..] == name
            });
            for entry in [by_index, by_hash] {
                patient.edit(&entry, |data| data[29] ^= 3);
            }
        }),
        plain("an entry that no listing reaches", Kind::ItemKey, DoesNot, |patient| {
            let entry = patient.find(FS_TREE, |key, data| {
                let names_file = data.get(8) == Some(&ItemType::INODE_ITEM.0);
                key.item_type == ItemType::DIR_INDEX && key.offset == 2 && names_file
            });
            let target = u64::from_le_bytes(entry.data[..8].try_into().expect("eight bytes"));
            let own = Key::new(target, ItemType::INODE_REF, entry.key.objectid);
            let reference =
                patient.find(FS_TREE, |key, data| *key == own && data[..8] == 2_u64.to_le_bytes());
            patient.rekey(&entry, Key { offset: 1, ..entry.key });
            patient.edit(&reference, |data| data[0] = 1);
        }),
        plain("an entry that is called ..", Kind::EntryName, DoesNot, |p| rename(p, b"..")),
        plain("an entry that is called .", Kind::EntryName, DoesNot, |p| rename(p, b".")),
        plain("a slash in a name", Kind::EntryName, DoesNot, |p| rename(p, b"to/from")),
        plain("a zero byte in a name", Kind::EntryName, DoesNot, |p| rename(p, b"to\0from")),
        plain("two inodes have one name", Kind::DuplicateName, DoesNot, |patient| {
            let (_, other) = siblings(patient);
            rename(patient, &other.data[30..]);
        }),
        plain("a name that is too long for its item", Kind::ItemFormat, Sees, |patient| {
            patient.edit(&patient.find_type(FS_TREE, ItemType::DIR_INDEX), |data| data[28] = 1);
        }),
    ]
}

fn extents() -> Vec<Wound> {
    vec![
        plain("data becomes preallocated", Kind::ChecksumUnexpected, Sees, |patient| {
            let extent = patient.find(FS_TREE, |key, data| {
                key.item_type == ItemType::EXTENT_DATA
                    && matches!(FileExtent::parse(data), Ok(FileExtent::Regular {
                        header, extent, preallocated: false
                    }) if header.compression == 0 && has_one_reference(patient, extent))
            });
            patient.edit_as::<FileExtentHeader>(&extent, |header| header.kind = PREALLOCATED);
        }),
        plain("a file extent between sectors", Kind::FileExtent, Sees, |patient| {
            patient.edit_as::<FileExtentItem>(&regular(patient), |item| item.extent.num_bytes -= 1);
        }),
        plain("a file extent beyond its extent", Kind::FileExtent, Sees, |patient| {
            patient.edit_as::<FileExtentItem>(&regular(patient), |item| {
                item.extent.offset += 1 << 30;
            });
        }),
        plain("a file extent of an unknown compression", Kind::FileExtent, DoesNot, |patient| {
            patient.edit_as::<FileExtentItem>(&regular(patient), |item| {
                item.header.compression = 9;
            });
        }),
        plain("two file extents overlap", Kind::FileExtentOverlap, Sees, |patient| {
            let file = patient.items(FS_TREE);
            let pair = file.windows(2).find(|pair| {
                let are_extents =
                    pair.iter().all(|found| found.key.item_type == ItemType::EXTENT_DATA);
                let is_regular = pair[1].data.len() == size_of::<FileExtentItem>();
                are_extents
                    && is_regular
                    && pair[0].key.objectid == pair[1].key.objectid
                    && pair[1].slot > 1
                    && pair[1].key.offset > pair[0].key.offset + 4096
            });
            let second = &pair.expect("a file with two extents")[1];
            patient.rekey(second, Key { offset: second.key.offset - 4096, ..second.key });
        }),
        on(Base::Holes, "a hole is gone", Kind::FileExtentGap, Sees, |patient| {
            let hole = extent(patient, |extent| {
                matches!(extent, FileExtent::Regular { extent, .. }
                    if extent.disk_bytenr().is_none())
            });
            patient.remove(&hole);
        }),
        plain("an inline extent of no stream", Kind::CompressedData, DoesNot, |patient| {
            let inline = extent(patient, |extent| matches!(extent, FileExtent::Inline { .. }));
            patient.edit_as::<FileExtentHeader>(&inline, |header| header.compression = 1);
        }),
        plain("an inline extent that is too short", Kind::InlineExtent, Sees, |patient| {
            let inline = extent(patient, |extent| matches!(extent, FileExtent::Inline { .. }));
            patient.edit_as::<FileExtentHeader>(&inline, |header| header.ram_bytes += 1);
        }),
        plain("the size of a file", Kind::FileSize, DoesNot, |patient| {
            let extent = regular(patient);
            let inode = patient.find(FS_TREE, |key, _| {
                key.item_type == ItemType::INODE_ITEM && key.objectid == extent.key.objectid
            });
            patient.edit_as::<InodeItem>(&inode, |item| item.size = 0.into());
        }),
        plain("nbytes of a file", Kind::InodeBytes, Sees, |patient| {
            patient.edit_as::<InodeItem>(&inode(patient, REGULAR), |item| item.nbytes += 4096);
        }),
        plain("the length of a file extent's extent", Kind::ExtentMismatch, Sees, |patient| {
            patient.edit_as::<FileExtentItem>(&regular(patient), |item| {
                item.extent.disk_num_bytes += 4096;
            });
        }),
    ]
}

/// Items to insert.
trait Made {
    fn of_hole(len_bytes: u64) -> Vec<u8>;
}

impl Made for FileExtentItem {
    fn of_hole(len_bytes: u64) -> Vec<u8> {
        use zerocopy::{FromZeros, IntoBytes};
        let mut item = Self::new_zeroed();
        item.header.kind = 1;
        item.header.ram_bytes = len_bytes.into();
        item.extent.num_bytes = len_bytes.into();
        item.as_bytes().to_vec()
    }
}
