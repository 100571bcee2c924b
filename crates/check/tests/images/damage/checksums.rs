//! Checksums, data and parity.

use larder_check::Kind;
use larder_format::item::{FileExtent, InodeItem};
use larder_format::objectid::{CSUM_TREE, EXTENT_CSUM, FS_TREE};
use larder_format::{ItemType, Key};

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::{Found, Patient};

/// The checksum item in the middle of the tree.
fn item(patient: &Patient) -> Found {
    let items = patient.items(CSUM_TREE);
    let middle = items.len() / 2;
    items.into_iter().skip(middle).find(|found| found.slot > 0).expect("checksums")
}

/// The first item of a type in the log of the top subvolume; a file extent with data.
fn logged(patient: &Patient, item_type: ItemType) -> Found {
    let mut items = patient.log_items(FS_TREE).into_iter();
    let has_data = |found: &Found| match FileExtent::parse(&found.data) {
        Ok(FileExtent::Regular { extent, .. }) => extent.disk_bytenr().is_some(),
        _ => false,
    };
    let found = items.find(|found| {
        found.key.item_type == item_type && (item_type != ItemType::EXTENT_DATA || has_data(found))
    });
    found.expect("the log has such an item")
}

pub(super) fn wounds() -> Vec<Wound> {
    let mut wounds = items();
    wounds.extend(data());
    wounds
}

fn items() -> Vec<Wound> {
    vec![
        plain("a checksum item is gone", Kind::ChecksumMissing, Sees, |patient| {
            patient.remove(&item(patient));
        }),
        plain("a checksum item between sectors", Kind::ChecksumItem, Sees, |patient| {
            let item = item(patient);
            patient.rekey(&item, Key { offset: item.key.offset + 1, ..item.key });
        }),
        plain("half a checksum", Kind::ChecksumItem, DoesNot, |patient| {
            patient.edit(&item(patient), |data| data.push(0));
        }),
        plain("two checksum items overlap", Kind::ChecksumOverlap, Sees, |patient| {
            let items = patient.items(CSUM_TREE);
            let is_long =
                |pair: &&[Found]| pair[0].data.len() >= 12 && pair[0].leaf == pair[1].leaf;
            let pair = items.windows(2).find(is_long).expect("a long item and one after it");
            let key = Key { offset: pair[0].key.offset + 4096, ..pair[1].key };
            patient.rekey(&pair[1], key);
        }),
        plain("checksums outside of data", Kind::ChecksumDangling, DoesNot, |patient| {
            let key = Key::new(EXTENT_CSUM, ItemType::EXTENT_CSUM, 1 << 40);
            patient.insert(CSUM_TREE, key, &[0; 4]);
        }),
        plain(
            "compressed data of a file without checksums",
            Kind::ChecksumMissing,
            Sees,
            |patient| {
                let extent = patient.find(FS_TREE, |key, data| {
                    key.item_type == ItemType::EXTENT_DATA
                        && matches!(FileExtent::parse(data), Ok(FileExtent::Regular { header, .. })
                        if header.compression != 0)
                });
                let inode = patient.find(FS_TREE, |key, _| {
                    key.item_type == ItemType::INODE_ITEM && key.objectid == extent.key.objectid
                });
                patient.edit_as::<InodeItem>(&inode, |item| item.flags |= 1);
            },
        ),
        plain("checksums of a file without", Kind::ChecksumUnexpected, Sees, |patient| {
            let extent = patient.find(FS_TREE, |key, data| {
                key.item_type == ItemType::EXTENT_DATA
                    && matches!(FileExtent::parse(data), Ok(FileExtent::Regular { extent, preallocated: false, .. })
                        if extent.disk_bytenr().is_some())
            });
            let inode = patient.find(FS_TREE, |key, _| {
                key.item_type == ItemType::INODE_ITEM && key.objectid == extent.key.objectid
            });
            patient.edit_as::<InodeItem>(&inode, |item| item.flags |= 1);
        }),
    ]
}

fn data() -> Vec<Wound> {
    vec![
        on(Base::PowerCut, "logged data without checksums", Kind::ChecksumMissing, DoesNot, |p| {
            p.remove(&logged(p, ItemType::EXTENT_CSUM));
        }),
        on(Base::PowerCut, "a checksum in a log", Kind::DataChecksum, DoesNot, |patient| {
            patient.edit(&logged(patient, ItemType::EXTENT_CSUM), |data| data[0] ^= 1);
        }),
        on(Base::PowerCut, "a log's data where other data is", Kind::LogExtent, DoesNot, |p| {
            let old = p.find(FS_TREE, |key, data| {
                key.item_type == ItemType::EXTENT_DATA
                    && matches!(FileExtent::parse(data), Ok(FileExtent::Regular { extent, .. })
                        if extent.disk_bytenr().is_some() && extent.disk_num_bytes.get() > 4096)
            });
            p.edit(&logged(p, ItemType::EXTENT_DATA), |data| {
                data[21..29].copy_from_slice(&old.data[21..29]);
            });
        }),
        plain("a byte of data", Kind::DataChecksum, Sees, |patient| {
            patient.invert(item(patient).key.offset + 5, 0, false);
        }),
        plain("a checksum of data", Kind::DataChecksum, Sees, |patient| {
            patient.edit(&item(patient), |data| data[0] ^= 1);
        }),
        on(Base::Raid1, "a byte of one copy of data", Kind::DataCopyBad, Sees, |patient| {
            patient.invert(item(patient).key.offset + 5, 1, false);
        }),
        on(Base::Raid5, "a byte of parity", Kind::Parity, DoesNot, |patient| {
            patient.invert(item(patient).key.offset + 5, 0, true);
        }),
    ]
}
