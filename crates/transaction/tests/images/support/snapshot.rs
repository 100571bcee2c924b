//! Snapshots with everything that `btrfs check` expects.

use larder_format::item::{
    DirItemHeader, FileType, INODE_ROOT_ITEM_INIT, InodeItem, ROOT_SUBVOL_DEAD, RootItem,
    RootRefHeader,
};
use larder_format::objectid::{ORPHAN, UUID_TREE};
use larder_format::{ItemType, Key, Uuid, name_hash};
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Items, NewSnapshot, TransactionManager, TreeItems};
use zerocopy::{FromBytes, IntoBytes};

use super::{ROOT_DIRECTORY, Random};

pub(crate) const TOP: u64 = 5;

pub(crate) struct Snapshot {
    pub(crate) id: u64,
    pub(crate) name: String,
    index: u64,
    uuid: Uuid,
}

/// Takes a snapshot of `source`, with a name in the top-level subvolume.
pub(crate) fn take(manager: &TransactionManager, source: u64, random: &mut Random) -> Snapshot {
    let room = manager.space().insertion_bytes(8);
    let room = manager.reserve(SpaceKind::Metadata, room, Priority::Normal).unwrap();
    let exclusive = manager.quiesce();
    let root_tree = TreeItems::new(manager.trees().root().clone());
    let last = Key::new(u64::MAX - 256, ItemType::ROOT_ITEM, u64::MAX);
    let (last, _) = root_tree.at_or_before(last).unwrap().unwrap();
    let id = last.objectid.max(255) + 1;
    let uuid = Uuid::from_u128(u128::from(random.next()) << 64 | u128::from(random.next()));
    let configure = |item: &mut RootItem| {
        item.parent_uuid = item.uuid;
        item.uuid = *uuid.as_bytes();
        item.otransid = manager.generation().into();
        item.inode.flags = INODE_ROOT_ITEM_INIT.into();
    };
    exclusive.snapshot(NewSnapshot { source, id }, configure).unwrap();
    // Far from the indexes of files.
    let snapshot = Snapshot { id, name: format!("snapshot-{id}"), index: id << 40, uuid };
    name(manager, &snapshot);
    drop((exclusive, room));
    snapshot
}

fn entry_key(snapshot: &Snapshot) -> Key {
    let hash = name_hash::dir_name(snapshot.name.as_bytes());
    Key::new(ROOT_DIRECTORY, ItemType::DIR_ITEM, hash)
}

fn name(manager: &TransactionManager, snapshot: &Snapshot) {
    let mut top = TreeItems::new(manager.trees().open(TOP).unwrap().unwrap());
    let bytes = snapshot.name.as_bytes();
    let entry = DirItemHeader {
        location: Key::new(snapshot.id, ItemType::ROOT_ITEM, u64::MAX).into(),
        transid: manager.generation().into(),
        data_len: 0.into(),
        name_len: (bytes.len() as u16).into(),
        file_type: FileType::Directory as u8,
    };
    let entry = [entry.as_bytes(), bytes].concat();
    top.insert(entry_key(snapshot), &entry).unwrap();
    top.insert(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, snapshot.index), &entry).unwrap();
    grow(manager, 2 * bytes.len() as i64);
    let mut root_tree = TreeItems::new(manager.trees().root().clone());
    let reference = RootRefHeader {
        dirid: ROOT_DIRECTORY.into(),
        sequence: snapshot.index.into(),
        name_len: (bytes.len() as u16).into(),
    };
    let reference = [reference.as_bytes(), bytes].concat();
    for key in reference_keys(snapshot) {
        root_tree.insert(key, &reference).unwrap();
    }
    let mut uuids = TreeItems::new(manager.trees().open(UUID_TREE).unwrap().unwrap());
    uuids.insert(uuid_key(snapshot), &snapshot.id.to_le_bytes()).unwrap();
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
    let top = manager.trees().open(TOP).unwrap().unwrap();
    top.modify(Key::new(ROOT_DIRECTORY, ItemType::INODE_ITEM, 0), |data| {
        let (item, _) = InodeItem::mut_from_prefix(data).unwrap();
        item.size = item.size.get().wrapping_add_signed(by).into();
    })
    .unwrap();
}

/// Unlinks a snapshot, which becomes an orphan.
pub(crate) fn unlink(manager: &TransactionManager, snapshot: &Snapshot) {
    let handle = manager.start(8, Priority::Deleting).unwrap();
    let mut top = TreeItems::new(manager.trees().open(TOP).unwrap().unwrap());
    top.remove(entry_key(snapshot)).unwrap();
    top.remove(Key::new(ROOT_DIRECTORY, ItemType::DIR_INDEX, snapshot.index)).unwrap();
    grow(manager, -2 * snapshot.name.len() as i64);
    let mut root_tree = TreeItems::new(manager.trees().root().clone());
    for key in reference_keys(snapshot) {
        root_tree.remove(key).unwrap();
    }
    let mut uuids = TreeItems::new(manager.trees().open(UUID_TREE).unwrap().unwrap());
    uuids.remove(uuid_key(snapshot)).unwrap();
    root_tree.insert(orphan_key(snapshot), &[]).unwrap();
    manager.trees().open(snapshot.id).unwrap().unwrap();
    handle
        .change_root_item(snapshot.id, |item| {
            item.refs = 0.into();
            item.flags = (item.flags.get() | ROOT_SUBVOL_DEAD).into();
        })
        .unwrap();
    handle.end().unwrap();
}

fn orphan_key(snapshot: &Snapshot) -> Key {
    Key::new(ORPHAN, ItemType::ORPHAN_ITEM, snapshot.id)
}

pub(crate) fn clear_orphan(manager: &TransactionManager, snapshot: &Snapshot) {
    let handle = manager.start(1, Priority::Deleting).unwrap();
    TreeItems::new(manager.trees().root().clone()).remove(orphan_key(snapshot)).unwrap();
    handle.end().unwrap();
}
