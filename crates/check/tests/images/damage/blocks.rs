//! The shape of trees.

use larder_check::Kind;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE, KEY_POINTER_SIZE, KeyPointer};
use larder_format::objectid::{CSUM_TREE, EXTENT_TREE, FS_TREE, ROOT_TREE};
use larder_format::{ItemType, Key, Node};
use zerocopy::FromBytes;

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::Patient;

/// A leaf of the top subvolume that is neither its first nor its last.
fn inner_leaf(patient: &Patient) -> u64 {
    let leaves = patient.leaves(FS_TREE);
    leaves[leaves.len() / 2]
}

/// The first inner block of the top subvolume above leaves.
fn parent(patient: &Patient) -> u64 {
    let is_parent = |block: &u64| Node::parse(&patient.block(*block)).expect("sound").level() == 1;
    patient.blocks(FS_TREE).into_iter().find(is_parent).expect("the tree is high enough")
}

/// Changes the pointer at `slot` of that block.
fn edit_pointer(patient: &Patient, slot: usize, change: impl FnOnce(&mut KeyPointer)) {
    patient.edit_block(parent(patient), |bytes| {
        let at = HEADER_SIZE + slot * KEY_POINTER_SIZE;
        change(KeyPointer::mut_from_prefix(&mut bytes[at..]).expect("fits").0);
    });
}

/// A slot of that block whose key can be reduced without passing the key before it.
fn loose_slot(patient: &Patient) -> usize {
    let bytes = patient.block(parent(patient));
    let node = Node::parse(&bytes).expect("sound");
    let is_loose = |slot: &usize| {
        let (before, key) = (node.key(slot - 1), node.key(*slot));
        key.offset > 0 && (before.objectid, before.item_type) != (key.objectid, key.item_type)
    };
    (1..node.nritems()).find(is_loose).expect("a key with an offset")
}

pub(super) fn wounds() -> Vec<Wound> {
    let mut wounds = contents();
    wounds.extend(headers());
    wounds.extend(edges());
    wounds
}

fn contents() -> Vec<Wound> {
    vec![
        plain("a byte of one copy of a leaf", Kind::BlockCopyBad, DoesNot, |patient| {
            patient.invert(inner_leaf(patient) + 3000, 1, false);
        }),
        on(
            Base::Raid1,
            "one mirror is of an older commit",
            Kind::BlockCopyBad,
            DoesNot,
            |patient| {
                patient.edit_copies(inner_leaf(patient), 1..2, |bytes| {
                    larder_format::Header::mut_from_prefix(bytes).expect("fits").0.generation -= 1;
                });
            },
        ),
        plain("a byte of both copies of a leaf", Kind::BlockUnreadable, Sees, |patient| {
            let leaf = inner_leaf(patient);
            patient.invert(leaf + 3000, 0, false);
            patient.invert(leaf + 3000, 1, false);
        }),
        plain("an unreadable leaf of the extent tree", Kind::BlockUnreadable, Sees, |patient| {
            let leaf = patient.leaves(EXTENT_TREE)[1];
            patient.invert(leaf + 3000, 0, false);
            patient.invert(leaf + 3000, 1, false);
        }),
        plain("two keys of a leaf change places", Kind::BlockStructure, Sees, |patient| {
            patient.edit_block(inner_leaf(patient), |bytes| {
                let (a, b) = (HEADER_SIZE + ITEM_HEADER_SIZE, HEADER_SIZE + 2 * ITEM_HEADER_SIZE);
                for byte in 0..17 {
                    bytes.swap(a + byte, b + byte);
                }
            });
        }),
        plain("an item outside of its leaf", Kind::BlockStructure, Sees, |patient| {
            patient.edit_block(inner_leaf(patient), |bytes| {
                bytes[HEADER_SIZE + 17 + 2] = 1; // Adds 65,536 to the first item's offset.
            });
        }),
        plain("a leaf without items", Kind::BlockEmpty, Sees, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.nritems = 0.into());
        }),
        plain("an item of an unknown type", Kind::UnexpectedItem, DoesNot, |patient| {
            let inode = patient.find_type(FS_TREE, ItemType::INODE_ITEM);
            patient.insert(FS_TREE, Key { item_type: ItemType(200), ..inode.key }, &[]);
        }),
        plain("a name that is longer than its item", Kind::BlockRefused, DoesNot, |patient| {
            let reference = patient.find_type(ROOT_TREE, ItemType::INODE_REF);
            patient.edit(&reference, |data| data[8] = 200);
        }),
        plain("a checksum item among files", Kind::UnexpectedItem, DoesNot, |patient| {
            let inode = patient.find_type(FS_TREE, ItemType::INODE_ITEM);
            patient.insert(FS_TREE, Key { item_type: ItemType::EXTENT_CSUM, ..inode.key }, &[0; 4]);
        }),
    ]
}

fn headers() -> Vec<Wound> {
    vec![
        plain("the address in a header", Kind::BlockAddress, Sees, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.bytenr += 4096);
        }),
        plain("the fsid in a header", Kind::BlockFsid, Sees, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.fsid[0] ^= 1);
        }),
        plain("the generation in a header", Kind::BlockGeneration, Sees, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.generation += 1);
        }),
        plain("the level in a header", Kind::BlockLevel, Sees, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.level = 1);
        }),
        plain("the owner of a leaf of checksums", Kind::BlockOwner, Sees, |patient| {
            patient.edit_header(patient.leaves(CSUM_TREE)[0], |header| header.owner = 9.into());
        }),
        plain("the owner of a leaf of files", Kind::BlockOwner, Sees, |patient| {
            // A leaf without data, whose references would tell.
            let leaf = patient.leaf_without_data(FS_TREE);
            patient.edit_header(leaf, |header| header.owner = 300.into());
        }),
        plain("the flags of a header", Kind::BlockFlags, DoesNot, |patient| {
            patient.edit_header(inner_leaf(patient), |header| header.flags &= !1);
        }),
        plain("the revision of references in a header", Kind::BlockFlags, Sees, |patient| {
            patient.edit_header(parent(patient), |header| header.flags &= 1);
        }),
        plain("the level of a root item", Kind::RootItem, Sees, |patient| {
            let root = patient.find(ROOT_TREE, |key, _| {
                key.objectid == FS_TREE && key.item_type == ItemType::ROOT_ITEM
            });
            patient.edit_as::<larder_format::item::RootItem>(&root, |item| item.level = 9);
        }),
        plain("the root item of the checksum tree", Kind::MissingTree, Sees, |patient| {
            let root = patient.find(ROOT_TREE, |key, _| {
                key.objectid == CSUM_TREE && key.item_type == ItemType::ROOT_ITEM
            });
            patient.remove(&root);
        }),
    ]
}

fn edges() -> Vec<Wound> {
    vec![
        plain("a pointer outside of all chunks", Kind::BlockAddress, Sees, |patient| {
            edit_pointer(patient, 2, |pointer| pointer.blockptr = (1 << 40).into());
        }),
        plain("a pointer's generation", Kind::BlockGeneration, Sees, |patient| {
            edit_pointer(patient, 2, |pointer| pointer.generation += 1);
        }),
        plain("a pointer's key", Kind::BlockFirstKey, Sees, |patient| {
            edit_pointer(patient, loose_slot(patient), |pointer| pointer.key.offset -= 1);
        }),
        plain("the last key of a leaf", Kind::BlockKeyRange, Sees, |patient| {
            patient.edit_leaf(inner_leaf(patient), |items| {
                items.last_mut().expect("has items").0.objectid += 1 << 20;
            });
        }),
        plain("a block that two pointers lead to", Kind::BlockFirstKey, Sees, |patient| {
            let mut first = 0;
            let mut generation = 0;
            edit_pointer(patient, 1, |pointer| {
                first = pointer.blockptr.get();
                generation = pointer.generation.get();
            });
            edit_pointer(patient, 2, |pointer| {
                pointer.blockptr = first.into();
                pointer.generation = generation.into();
            });
        }),
    ]
}
