//! Sound states that old tools and power cuts leave: no findings.

use std::slice::from_ref;

use larder_format::item::{Chunk, ChunkHeader, DevExtent, InodeItem, RootItem};
use larder_format::key::DiskKey;
use larder_format::objectid::{
    CHUNK_TREE, CSUM_TREE, DEV_TREE, FIRST_FREE, FS_TREE, ORPHAN, ROOT_TREE, UUID_TREE,
};
use larder_format::superblock::{OFFSETS, SUPER_FLAG_METADUMP_V2};
use larder_format::{BlockGroupFlags, ItemType, Key, Uuid, read_exact_item};
use larder_testkit::moments::Moments;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};

use crate::patient::{Found, Patient};

/// A change that leaves a sound file system.
struct Change {
    name: &'static str,
    make: fn(&Patient),
}

/// Makes each change in a copy of an image, and fails if any copy has findings.
fn assert_legal(spec: &ImageSpec, changes: &[Change]) {
    let image = KernelImage::build(spec, &Content::new(5));
    let sound = Patient::load(image.devices());
    let failures: Vec<String> = changes
        .iter()
        .filter_map(|change| {
            let patient = sound.copy();
            (change.make)(&patient);
            let report = patient.check().expect("opens");
            (!report.is_clean()).then(|| format!("{}:\n{report}", change.name))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn inode(patient: &Patient, is_wanted: impl Fn(&InodeItem) -> bool) -> Found {
    patient.find(FS_TREE, |key, data| {
        key.item_type == ItemType::INODE_ITEM
            && key.objectid > FIRST_FREE
            && read_exact_item::<InodeItem>(data).is_ok_and(&is_wanted)
    })
}

fn list_orphan(patient: &Patient, ino: u64) {
    patient.insert(FS_TREE, Key::new(ORPHAN, ItemType::ORPHAN_ITEM, ino), &[]);
}

/// Removes the name of a directory that has one entry at least, which names an empty inode. Returns
/// its number and its DIR_INDEX items.
fn unlink_directory(patient: &Patient) -> (u64, Vec<Found>) {
    let items = patient.items(FS_TREE);
    let of = |ino: u64, item_type: ItemType| {
        let is_it =
            move |item: &&Found| (item.key.objectid, item.key.item_type) == (ino, item_type);
        items.iter().filter(is_it)
    };
    let target = |index: &Found| {
        let (number, kind) = (index.data[..8].try_into(), index.data[8]);
        (number.map(u64::from_le_bytes).expect("a number"), ItemType(kind))
    };
    let is_small = |ino: u64| {
        let holds = [ItemType::EXTENT_DATA, ItemType::DIR_INDEX, ItemType::XATTR_ITEM];
        of(ino, ItemType::INODE_REF).count() == 1
            && holds.iter().all(|item_type| of(ino, *item_type).count() == 0)
    };
    let of_inode = |index: &Found| {
        let (ino, kind) = target(index);
        kind == ItemType::INODE_ITEM && is_small(ino)
    };
    let is_wanted = |directory: u64| {
        let mut indices = of(directory, ItemType::DIR_INDEX).peekable();
        directory > FIRST_FREE && indices.peek().is_some() && indices.any(of_inode)
    };
    let name = items
        .iter()
        .filter(|item| item.key.item_type == ItemType::DIR_INDEX)
        .find(|item| target(item).1 == ItemType::INODE_ITEM && is_wanted(target(item).0))
        .expect("a directory with an empty file");
    let (parent, directory) = (name.key.objectid, target(name).0);
    let name_len = u64::from(u16::from_le_bytes([name.data[27], name.data[28]]));
    // Reversed: a removed item moves those after it in its leaf.
    let removed = |item: &&Found| {
        item.key == name.key
            || (item.key.objectid, item.key.item_type, item.key.offset)
                == (directory, ItemType::INODE_REF, parent)
            || item.key.objectid == parent
                && item.key.item_type == ItemType::DIR_ITEM
                && item.data[..8] == name.data[..8]
    };
    let keys: Vec<Key> = items.iter().filter(removed).map(|item| item.key).collect();
    for key in keys {
        patient.remove(&patient.find(FS_TREE, |other, _| *other == key));
    }
    let inode =
        |ino| patient.find(FS_TREE, |key, _| *key == Key::new(ino, ItemType::INODE_ITEM, 0));
    patient.edit_as::<InodeItem>(&inode(parent), |item| item.size -= 2 * name_len);
    patient.edit_as::<InodeItem>(&inode(directory), |item| item.nlink = 0.into());
    let indices = patient
        .items(FS_TREE)
        .into_iter()
        .filter(|item| (item.key.objectid, item.key.item_type) == (directory, ItemType::DIR_INDEX));
    (directory, indices.filter(|index| of_inode(index)).collect())
}

/// A stripe of a system chunk, moved to the start of the device.
fn use_the_first_mebibyte(patient: &Patient) {
    let chunk = patient.find(CHUNK_TREE, |key, data| {
        key.item_type == ItemType::CHUNK_ITEM
            && Chunk::parse(data).is_ok_and(|chunk| chunk.flags().contains(BlockGroupFlags::SYSTEM))
    });
    let old = Chunk::parse(&chunk.data).expect("a chunk").stripes[0].offset.get();
    let extent =
        patient.find(DEV_TREE, |key, _| key.item_type == ItemType::DEV_EXTENT && key.offset == old);
    let len_bytes = read_exact_item::<DevExtent>(&extent.data).expect("its length").length.get();
    patient.remove(&extent);
    patient.insert(DEV_TREE, Key { offset: 0, ..extent.key }, &extent.data);
    let stripe = size_of::<ChunkHeader>();
    patient.edit(&chunk, |data| data[stripe + 8..stripe + 16].fill(0));
    patient.edit_superblocks(|superblock| {
        let stripe = size_of::<DiskKey>() + stripe;
        superblock.sys_chunk_array[stripe + 8..stripe + 16].fill(0);
    });
    // Last: the patient keeps the old locations.
    patient.move_bytes(old, 0, len_bytes);
}

#[test]
fn traces_of_old_tools() {
    let changes = [
        Change { name: "chunks in the first MiB of a device", make: use_the_first_mebibyte },
        Change {
            name: "a directory in the uuid tree",
            make: |patient| {
                let top = Key::new(FIRST_FREE, ItemType::INODE_ITEM, 0);
                let items = patient.items(FS_TREE);
                let directory: Vec<(Key, Vec<u8>)> = items
                    .into_iter()
                    .filter(|item| {
                        let own = Key { item_type: ItemType::INODE_REF, offset: FIRST_FREE, ..top };
                        item.key == top || item.key == own
                    })
                    .map(|item| (item.key, item.data))
                    .collect();
                assert_eq!(directory.len(), 2);
                patient.edit_leaf(patient.leaves(UUID_TREE)[0], |items| {
                    items.splice(0..0, directory);
                });
            },
        },
        Change {
            name: "a snapshot of a top subvolume without a uuid keeps entries of subvolumes",
            make: |patient| {
                let snapshots = patient.items(ROOT_TREE).into_iter().filter(|item| {
                    item.key.item_type == ItemType::ROOT_ITEM && item.key.offset != 0
                });
                for snapshot in snapshots {
                    patient.edit_as::<RootItem>(&snapshot, |item| {
                        item.parent_uuid = Uuid::nil().into_bytes();
                    });
                }
            },
        },
    ];
    assert_legal(&ImageSpec::new("legal"), &changes);
}

#[test]
fn states_after_power_cuts() {
    let changes = [
        Change {
            name: "a superblock copy of the commit before",
            make: |patient| {
                patient.edit_superblock_copy(1, |superblock| {
                    superblock.generation = (superblock.generation.get() - 1).into();
                    superblock.bytes_used += 4096;
                });
            },
        },
        Change {
            name: "the first superblock is of the commit before",
            make: |patient| {
                patient.edit_superblock_copy(0, |superblock| {
                    superblock.generation = (superblock.generation.get() - 1).into();
                    superblock.bytes_used += 4096;
                });
            },
        },
        Change {
            name: "an orphan without some of its extents",
            make: |patient| {
                let orphan = inode(patient, |item| item.nlink.get() == 0 && item.size.get() > 9000);
                patient.edit_as::<InodeItem>(&orphan, |item| item.nbytes += 4096);
            },
        },
        Change {
            name: "a leaf that the deletion of a subvolume has left",
            make: |patient| {
                let deleted = patient.find(ROOT_TREE, |key, data| {
                    key.item_type == ItemType::ROOT_ITEM
                        && RootItem::parse(data).is_ok_and(|root| root.refs.get() == 0)
                });
                let owner = deleted.key.objectid.into();
                patient.edit_header(patient.leaf_without_data(FS_TREE), |leaf| leaf.owner = owner);
            },
        },
        Change {
            name: "a directory that is being deleted and has entries",
            make: |patient| {
                let (directory, _) = unlink_directory(patient);
                list_orphan(patient, directory);
            },
        },
        Change {
            name: "a directory that is being deleted and has lost some entries",
            make: |patient| {
                let (directory, entries) = unlink_directory(patient);
                list_orphan(patient, directory);
                // The file that it named is gone, and one of its two items.
                let index = &entries[0];
                let file = index.data[..8].try_into().map(u64::from_le_bytes).expect("a number");
                patient.remove(index);
                while let Some(item) =
                    patient.items(FS_TREE).into_iter().find(|item| item.key.objectid == file)
                {
                    patient.remove(&item);
                }
            },
        },
        Change {
            name: "checksums of data whose extent only the log names",
            make: |patient| {
                let sums = patient
                    .log_items(FS_TREE)
                    .into_iter()
                    .filter(|item| item.key.item_type == ItemType::EXTENT_CSUM);
                for item in sums {
                    patient.insert(CSUM_TREE, item.key, &item.data);
                }
            },
        },
        Change {
            name: "a superblock copy that was never written",
            make: |patient| patient.write(0, OFFSETS[1].0, &[0; 4096]),
        },
        Change {
            name: "a metadata dump without data",
            make: |patient| {
                patient.edit_superblocks(|superblock| superblock.flags |= SUPER_FLAG_METADUMP_V2);
                let sums = patient.find_type(CSUM_TREE, ItemType::EXTENT_CSUM);
                patient.invert(sums.key.offset, 0, false);
            },
        },
        Change {
            name: "a listed orphan that is gone",
            make: |patient| list_orphan(patient, 1 << 30),
        },
        Change {
            name: "a file that old kernels were truncating",
            make: |patient| {
                let file = inode(patient, |item| item.nlink.get() == 1 && item.size.get() > 9000);
                patient.edit_as::<InodeItem>(&file, |item| {
                    item.size = 0.into();
                    item.nbytes += 4096;
                });
                list_orphan(patient, file.key.objectid);
            },
        },
    ];
    assert_legal(&ImageSpec::new("cut").power_cut(), &changes);
}

/// A device with all tree blocks of the last commit and a superblock of the previous one: a power
/// cut between the superblocks of two devices. The check sees no damage, and reports what it cannot
/// judge.
#[test]
fn a_device_one_commit_behind_with_all_tree_blocks_is_accepted() {
    let spec = ImageSpec::new("behind").devices(&[256 << 20; 2]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(5));
    let patient = Patient::load(image.devices());
    patient.put_one_commit_back(1);
    let report = patient.check().expect("opens");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped.len(), 1, "{report}");
    assert!(report.skipped[0].starts_with("whether device 2 has the data"), "{report}");
}

/// States that a power cut could leave while the kernel relocates.
#[test]
fn states_within_a_relocation() {
    let copies = Moments::of_a_balance();
    let within = &copies.within_relocations;
    for copy in within.iter().step_by(within.len().div_ceil(4)) {
        let report = Patient::load(from_ref(copy)).check().expect("opens");
        assert!(report.is_clean(), "{report}");
    }
}
