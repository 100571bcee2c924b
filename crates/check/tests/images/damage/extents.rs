//! Extents and their references.

use larder_check::Kind;
use larder_format::item::{BackRef, EXTENT_FLAG_DATA, EXTENT_FLAG_TREE_BLOCK, Extent, ExtentItem};
use larder_format::objectid::EXTENT_TREE;
use larder_format::{ItemType, Key};
use zerocopy::IntoBytes;

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::{Found, Patient};

/// The first data extent with exactly these numbers of inline references, each counting one.
fn data_extent(patient: &Patient, references: usize) -> Found {
    let mut items = patient.items(EXTENT_TREE).into_iter();
    let is_wanted = |found: &Found| {
        let key = found.key;
        let Ok(extent) = Extent::parse(key, &found.data) else { return false };
        let refs: Vec<_> = extent.back_refs().flatten().collect();
        key.item_type == ItemType::EXTENT_ITEM
            && found.slot > 0
            && !extent.is_tree_block()
            && refs.len() == references
            && refs.iter().all(|r| matches!(r.back_ref, BackRef::Data { count: 1, .. }))
    };
    items.find(is_wanted).expect("the image has such an extent")
}

fn new_data_extent(patient: &Patient, start: u64, len_bytes: u64) {
    let generation = patient.generation().into();
    let item = ExtentItem { refs: 1.into(), generation, flags: EXTENT_FLAG_DATA.into() };
    let mut data = item.as_bytes().to_vec();
    BackRef::Data { root: 5, objectid: 257, offset: 0, count: 1 }.write_inline(&mut data);
    patient.insert(EXTENT_TREE, Key::new(start, ItemType::EXTENT_ITEM, len_bytes), &data);
}

fn new_block_extent(patient: &Patient, start: u64) {
    let (generation, flags) = (patient.generation().into(), EXTENT_FLAG_TREE_BLOCK.into());
    let item = ExtentItem { refs: 1.into(), generation, flags };
    let mut data = item.as_bytes().to_vec();
    BackRef::TreeBlock { root: 5 }.write_inline(&mut data);
    patient.insert(EXTENT_TREE, Key::new(start, ItemType::METADATA_ITEM, 0), &data);
}

pub(super) fn wounds() -> Vec<Wound> {
    let mut wounds = items();
    wounds.extend(references());
    wounds
}

fn items() -> Vec<Wound> {
    vec![
        plain("a data extent is gone", Kind::ExtentMissing, Sees, |patient| {
            patient.remove(&data_extent(patient, 1));
        }),
        plain("a tree block's extent is gone", Kind::ExtentMissing, Sees, |patient| {
            patient.remove(&patient.find_type(EXTENT_TREE, ItemType::METADATA_ITEM));
        }),
        plain("an extent without references", Kind::ExtentUnreferenced, Sees, |patient| {
            let items = patient.items(EXTENT_TREE);
            let is_data = |found: &&Found| {
                Extent::parse(found.key, &found.data).is_ok_and(|extent| !extent.is_tree_block())
                    && found.key.item_type == ItemType::EXTENT_ITEM
            };
            let last = items.iter().rev().find(is_data).expect("data");
            new_data_extent(patient, last.key.objectid + last.key.offset, 4096);
        }),
        plain("two extents overlap", Kind::ExtentOverlap, Sees, |patient| {
            let items = patient.items(EXTENT_TREE);
            let long = items.iter().find(|found| {
                found.key.item_type == ItemType::EXTENT_ITEM && found.key.offset > 4096
            });
            new_data_extent(patient, long.expect("a long extent").key.objectid + 4096, 4096);
        }),
        plain("an extent outside of all block groups", Kind::ExtentOutsideBlockGroup, Sees, |p| {
            new_data_extent(p, 1 << 40, 4096);
        }),
        plain("an extent where a superblock copy is", Kind::ExtentOnSuperblock, Sees, |patient| {
            new_block_extent(patient, patient.address_on_superblock());
        }),
        plain(
            "a data extent among tree blocks",
            Kind::ExtentOutsideBlockGroup,
            DoesNot,
            |patient| {
                let block = patient.find_type(EXTENT_TREE, ItemType::METADATA_ITEM);
                patient.edit_as::<ExtentItem>(&block, |item| item.flags = EXTENT_FLAG_DATA.into());
            },
        ),
        plain("the flags of an extent", Kind::ExtentItem, Sees, |patient| {
            let extent = data_extent(patient, 1);
            patient.edit_as::<ExtentItem>(&extent, |item| item.flags |= 2);
        }),
        plain("the generation of an extent lies ahead", Kind::ExtentItem, Sees, |patient| {
            let extent = data_extent(patient, 1);
            patient.edit_as::<ExtentItem>(&extent, |item| item.generation += 1 << 32);
        }),
        plain("the generation of a block's extent", Kind::ExtentMismatch, DoesNot, |patient| {
            let block = patient.find_type(EXTENT_TREE, ItemType::METADATA_ITEM);
            patient.edit_as::<ExtentItem>(&block, |item| item.generation -= 1);
        }),
        plain("the level of a block's extent", Kind::ExtentMismatch, DoesNot, |patient| {
            let block = patient.find(EXTENT_TREE, |key, _| {
                key.item_type == ItemType::METADATA_ITEM && key.offset == 0
            });
            patient.rekey(&block, Key { offset: 1, ..block.key });
        }),
    ]
}

fn references() -> Vec<Wound> {
    vec![
        plain("the number of references", Kind::ExtentReferenceCount, Sees, |patient| {
            let extent = data_extent(patient, 1);
            patient.edit_as::<ExtentItem>(&extent, |item| item.refs += 1);
        }),
        plain("the inode of a reference", Kind::BackReferenceMissing, Sees, |patient| {
            patient.edit(&data_extent(patient, 1), |data| data[24 + 1 + 8 + 3] ^= 1);
        }),
        plain("a reference that no tree makes", Kind::BackReferenceDangling, Sees, |patient| {
            let extent = data_extent(patient, 1);
            patient.edit(&extent, |data| {
                // Sorts last: types ascend.
                BackRef::SharedData { parent: 1 << 30, count: 1 }.write_inline(data);
            });
            patient.edit_as::<ExtentItem>(&extent, |item| item.refs += 1);
        }),
        plain("the count of a reference", Kind::BackReferenceCount, Sees, |patient| {
            let extent = data_extent(patient, 1);
            patient.edit(&extent, |data| data[24 + 1 + 24] += 1);
            patient.edit_as::<ExtentItem>(&extent, |item| item.refs += 1);
        }),
        plain("inline references out of order", Kind::ExtentItem, DoesNot, |patient| {
            patient.edit(&data_extent(patient, 2), |data| data[24..].rotate_left(29));
        }),
        plain("the tree of a block's reference", Kind::BackReferenceMissing, Sees, |patient| {
            let mut items = patient.items(EXTENT_TREE).into_iter();
            let block = items.find(|found| {
                found.key.item_type == ItemType::METADATA_ITEM
                    && found.data.len() == 33
                    && found.data[24] == ItemType::TREE_BLOCK_REF.0
            });
            patient.edit(&block.expect("a tree block"), |data| data[25] ^= 0x40);
        }),
        plain(
            "a keyed reference without its extent",
            Kind::BackReferenceDangling,
            Sees,
            |patient| {
                let extent = data_extent(patient, 1);
                let key = Key::new(extent.key.objectid + 1, ItemType::SHARED_DATA_REF, 4096);
                patient.insert(EXTENT_TREE, key, &1_u32.to_le_bytes());
            },
        ),
        on(Base::PowerCut, "an extent where the log lies", Kind::LogBlock, Sees, |patient| {
            new_block_extent(patient, patient.log_root());
        }),
    ]
}
