//! Snapshots, changes on both sides, and deletions in any order leave exact references: `btrfs check`
//! finds nothing, and the kernel goes on from there.

mod support;

use larder_format::item::{
    DirItemHeader, FileType, INODE_ROOT_ITEM_INIT, InodeItem, ROOT_SUBVOL_DEAD, RootItem,
    RootRefHeader,
};
use larder_format::objectid::{ORPHAN, UUID_TREE};
use larder_format::{ItemType, Key, Uuid, name_hash};
use larder_testkit::{Content, ImageSpec, KernelImage, oracle};
use larder_transaction::space::Priority;
use larder_transaction::{Items, NewSnapshot, TransactionManager, TreeItems};
use support::{Files, ROOT_DIRECTORY, Random, open, touch};
use zerocopy::{FromBytes, IntoBytes};

const TOP: u64 = 5;

struct Snapshot {
    id: u64,
    name: String,
    index: u64,
    uuid: Uuid,
}

/// Takes a snapshot of `source`, with a name in the top-level subvolume.
fn take(manager: &TransactionManager, source: u64, random: &mut Random) -> Snapshot {
    let root_tree = TreeItems::new(manager.root_tree().clone());
    let last = Key::new(u64::MAX - 256, ItemType::ROOT_ITEM, u64::MAX);
    let (last, _) = root_tree.at_or_before(last).unwrap().unwrap();
    let id = last.objectid.max(255) + 1;
    let uuid = Uuid::from_u128(u128::from(random.next()) << 64 | u128::from(random.next()));
    let exclusive = manager.close();
    let configure = |item: &mut RootItem| {
        item.parent_uuid = item.uuid;
        item.uuid = *uuid.as_bytes();
        item.otransid = manager.generation().into();
        item.inode.flags = INODE_ROOT_ITEM_INIT.into();
    };
    exclusive.snapshot(NewSnapshot { source, id }, configure).unwrap();
    drop(exclusive);
    let mut snapshot = Snapshot { id, name: format!("snapshot-{id}"), index: 0, uuid };
    name(manager, &mut snapshot);
    snapshot
}

fn entry_key(snapshot: &Snapshot) -> Key {
    let hash = name_hash::dir_name(snapshot.name.as_bytes());
    Key::new(ROOT_DIRECTORY, ItemType::DIR_ITEM, hash)
}

fn name(manager: &TransactionManager, snapshot: &mut Snapshot) {
    let handle = manager.join(8, Priority::Normal).unwrap();
    let mut top = TreeItems::new(manager.tree(TOP).unwrap().unwrap());
    let last = Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, u64::MAX);
    let (last, _) = top.at_or_before(last).unwrap().unwrap();
    snapshot.index = if last.item_type == ItemType::DIR_INDEX { last.offset + 1 } else { 2 };
    let bytes = snapshot.name.as_bytes();
    let entry = DirItemHeader {
        location: Key::new(snapshot.id, ItemType::ROOT_ITEM, u64::MAX).into(),
        transid: handle.generation().into(),
        data_len: 0.into(),
        name_len: (bytes.len() as u16).into(),
        file_type: FileType::Directory as u8,
    };
    let entry = [entry.as_bytes(), bytes].concat();
    top.insert(entry_key(snapshot), &entry).unwrap();
    top.insert(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, snapshot.index), &entry).unwrap();
    grow(manager, 2 * bytes.len() as i64);
    let mut root_tree = TreeItems::new(manager.root_tree().clone());
    let reference = RootRefHeader {
        dirid: ROOT_DIRECTORY.into(),
        sequence: snapshot.index.into(),
        name_len: (bytes.len() as u16).into(),
    };
    let reference = [reference.as_bytes(), bytes].concat();
    for key in reference_keys(snapshot) {
        root_tree.insert(key, &reference).unwrap();
    }
    let mut uuids = TreeItems::new(manager.tree(UUID_TREE).unwrap().unwrap());
    uuids.insert(uuid_key(snapshot), &snapshot.id.to_le_bytes()).unwrap();
    handle.end().unwrap();
}

fn reference_keys(snapshot: &Snapshot) -> [Key; 2] {
    [
        Key::new(TOP, ItemType::ROOT_REF, snapshot.id),
        Key::new(snapshot.id, ItemType::ROOT_BACKREF, TOP),
    ]
}

fn uuid_key(snapshot: &Snapshot) -> Key {
    larder_format::item::uuid_key(snapshot.uuid, ItemType::UUID_KEY_SUBVOL)
}

fn grow(manager: &TransactionManager, by: i64) {
    let top = manager.tree(TOP).unwrap().unwrap();
    top.modify(Key::new(ROOT_DIRECTORY, ItemType::INODE_ITEM, 0), |data| {
        let (item, _) = InodeItem::mut_from_prefix(data).unwrap();
        item.size = item.size.get().wrapping_add_signed(by).into();
    })
    .unwrap();
}

/// Unlinks a snapshot; what is left of it is an orphan.
fn unlink(manager: &TransactionManager, snapshot: &Snapshot) {
    let handle = manager.join(8, Priority::Deleting).unwrap();
    let mut top = TreeItems::new(manager.tree(TOP).unwrap().unwrap());
    top.remove(entry_key(snapshot)).unwrap();
    top.remove(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, snapshot.index)).unwrap();
    grow(manager, -2 * snapshot.name.len() as i64);
    let mut root_tree = TreeItems::new(manager.root_tree().clone());
    for key in reference_keys(snapshot) {
        root_tree.remove(key).unwrap();
    }
    let mut uuids = TreeItems::new(manager.tree(UUID_TREE).unwrap().unwrap());
    uuids.remove(uuid_key(snapshot)).unwrap();
    root_tree.insert(orphan_key(snapshot), &[]).unwrap();
    manager.tree(snapshot.id).unwrap().unwrap();
    manager
        .change_root_item(&handle, snapshot.id, |item| {
            item.refs = 0.into();
            item.flags = (item.flags.get() | ROOT_SUBVOL_DEAD).into();
        })
        .unwrap();
    handle.end().unwrap();
}

fn orphan_key(snapshot: &Snapshot) -> Key {
    Key::new(ORPHAN, ItemType::ORPHAN_ITEM, snapshot.id)
}

fn clear_orphan(manager: &TransactionManager, snapshot: &Snapshot) {
    let handle = manager.join(1, Priority::Deleting).unwrap();
    TreeItems::new(manager.root_tree().clone()).remove(orphan_key(snapshot)).unwrap();
    handle.end().unwrap();
}

fn check(image: &KernelImage, what: &str) {
    oracle::check(image.devices(), false).unwrap_or_else(|error| panic!("after {what}: {error}"));
}

/// Random changes to a subvolume and to snapshots of it and of each other, and random deletions.
fn histories(spec: &ImageSpec, seed: u64, rounds: u64) {
    let image = KernelImage::build(spec, &Content::new(seed));
    let mut random = Random(seed);
    let mut files = Files::new("larder", seed);
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for round in 0..rounds {
        let manager = open(image.devices());
        for _ in 0..3 {
            files.churn(&manager, random.below(60)).unwrap();
            touch(&manager, TOP, random.below(12), &mut random).unwrap();
            for snapshot in &snapshots {
                touch(&manager, snapshot.id, random.below(8), &mut random).unwrap();
            }
            let source = match random.below(3) {
                0 if !snapshots.is_empty() => {
                    snapshots[random.below(snapshots.len() as u64) as usize].id
                }
                _ => TOP,
            };
            snapshots.push(take(&manager, source, &mut random));
            // What the source does before the commit that the snapshot is in.
            touch(&manager, TOP, random.below(6), &mut random).unwrap();
            manager.commit().unwrap();
            if snapshots.len() > 3 {
                let index = random.below(snapshots.len() as u64) as usize;
                let dead = snapshots.swap_remove(index);
                unlink(&manager, &dead);
                // In small steps, with commits between some.
                while !manager.drop_tree(dead.id, 5).unwrap() {
                    if random.below(4) == 0 {
                        manager.commit().unwrap();
                    }
                }
                clear_orphan(&manager, &dead);
            }
            manager.commit().unwrap();
        }
        drop(manager);
        check(&image, &format!("round {round}"));
    }
    let mount = image.mount("commit=1");
    oracle::scrub(&mount).unwrap();
    for snapshot in &snapshots {
        // The kernel reads all of each, and deletes some.
        let path = mount.path().join(&snapshot.name);
        larder_testkit::Manifest::of_tree(&path);
        if random.below(2) == 0 {
            let delete = ["subvolume".as_ref(), "delete".as_ref(), path.as_os_str()];
            larder_testkit::command::run("btrfs", delete).unwrap();
        }
    }
    larder_testkit::command::run(
        "btrfs",
        ["subvolume".as_ref(), "sync".as_ref(), mount.path().as_os_str()],
    )
    .unwrap();
    drop(mount);
    check(&image, "the kernel's deletions");
}

#[test]
fn references_stay_exact() {
    histories(&ImageSpec::new("default"), 11, 5);
}

#[test]
fn references_stay_exact_in_deep_trees() {
    histories(&ImageSpec::new("nodes-4k").node_size(4096), 12, 6);
}

#[test]
fn references_stay_exact_without_skinny_metadata() {
    let spec = ImageSpec::new("no-skinny").without(larder_testkit::Feature::SkinnyMetadata);
    histories(&spec.node_size(4096), 13, 3);
}

#[test]
fn a_snapshot_that_changes_before_its_commit_is_refused() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(14));
    let manager = open(image.devices());
    let mut random = Random(14);
    let snapshot = take(&manager, TOP, &mut random);
    touch(&manager, snapshot.id, 1, &mut random).unwrap();
    assert!(manager.commit().is_err());
    assert!(manager.abort_reason().is_some());
    drop(manager);
    check(&image, "the abort");
}
