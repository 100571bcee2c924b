//! The manager itself: its hook, space flushing, new trees, commits in the background, degraded
//! devices.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_device::{Access, Device, FileDevice};
use larder_format::feature::CompatRoFlags;
use larder_format::item::{INODE_ROOT_ITEM_INIT, RootItem};
use larder_format::objectid::UUID_TREE;
use larder_format::{ItemType, Key};
use larder_mkfs::MkfsOptions;
use larder_power_cuts::{assert_sound, load};
use larder_testkit::{KernelMount, Scratch};
use larder_transaction::space::Priority;
use larder_transaction::{
    BackgroundCommits, Error, Exclusive, Items, Result, TransactionHook, TransactionManager,
    TreeItems,
};
use larder_volume::{OpenOptions, Volume};
use zerocopy::FromZeros;

use crate::support::{Blank, Directory, Files, names, open, open_volume, write_data};

const MIB: u64 = 1 << 20;

/// A hook that counts commits, and changes a tree in each.
struct Calls {
    manager: Weak<TransactionManager>,
    count: AtomicU64,
}

impl TransactionHook for Calls {
    fn before_commit(&self) -> Result<()> {
        drop(self.manager.upgrade().expect("it commits").join()?);
        self.count.fetch_add(1, SeqCst);
        Ok(())
    }

    fn in_commit(&self, exclusive: &Exclusive<'_>) -> Result<()> {
        self.count.fetch_add(1, SeqCst);
        let tree = exclusive.manager().trees().open(5)?.expect("it is there");
        let key = Key::new(257, ItemType::XATTR_ITEM, self.count.load(SeqCst));
        tree.put(key, &[]).map_err(Error::from)?;
        tree.delete(key).map_err(Error::from)?;
        Ok(())
    }
}

#[test]
fn the_hook_takes_part_in_commits() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let hook = Arc::new(Calls { manager: Arc::downgrade(&manager), count: AtomicU64::new(0) });
    manager.set_hook(hook.clone());
    Files::new("larder", 1).churn(&manager, 10).unwrap();
    manager.commit().unwrap();
    assert_eq!(hook.count.load(SeqCst), 2);
    drop(manager);
    image.check("hook");
}

#[test]
fn a_commit_of_nothing_writes_nothing() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    let before = manager.durable_generation();
    assert_eq!(manager.commit().unwrap(), before);
    Files::new("larder", 1).churn(&manager, 3).unwrap();
    assert_eq!(manager.commit().unwrap(), before + 1);
    assert_eq!(manager.commit().unwrap(), before + 1);
    // Nor does opening.
    let written: u64 = manager.volume().stats().devices.iter().map(|device| device.writes).sum();
    drop(manager);
    let manager = open(&image.devices);
    assert!(written > 0);
    assert_eq!(manager.volume().stats().devices[0].writes, 0);
}

#[test]
fn the_superblock_and_root_items_change_with_a_commit() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    manager.change_superblock(|superblock| superblock.label[..6].copy_from_slice(b"pantry"));
    manager.commit().unwrap();
    drop(manager);
    let manager = open(&image.devices);
    assert_eq!(manager.superblock().label(), b"pantry");
    drop(manager);
    image.check("a label");
}

#[test]
fn a_new_tree_is_there_after_a_commit() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    let existing = manager.trees().open(UUID_TREE).unwrap();
    let handle = manager.start(2, Priority::Normal).unwrap();
    let mut item = RootItem::new_zeroed();
    item.refs = 1.into();
    item.inode.flags = INODE_ROOT_ITEM_INIT.into();
    let id = larder_format::objectid::QUOTA_TREE;
    assert!(existing.is_some());
    assert!(matches!(
        handle.create_tree(UUID_TREE, &item).map(drop),
        Err(Error::ItemExists { .. })
    ));
    let tree = handle.create_tree(id, &item).unwrap();
    tree.insert(Key::new(0, ItemType::QGROUP_INFO, 5), &[0; 40]).unwrap();
    handle.end().unwrap();
    manager.commit().unwrap();
    drop((existing, tree, manager));
    let manager = open(&image.devices);
    let tree = TreeItems::new(manager.trees().open(id).unwrap().unwrap());
    assert_eq!(tree.range(Key::MIN..=Key::MAX).unwrap().len(), 1);
}

#[test]
fn readers_see_the_durable_state_until_the_next_is() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 50).unwrap();
    manager.commit().unwrap();
    let root_of = || manager.durable_root_tree().root();
    let before = root_of();
    files.churn(&manager, 50).unwrap();
    assert_eq!(root_of(), before);
    manager.commit().unwrap();
    assert_ne!(root_of(), before);
    assert_eq!(root_of().generation, manager.durable_generation());
}

#[test]
fn commits_happen_in_the_background() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let before = manager.durable_generation();
    let interval = BackgroundCommits::DEFAULT_INTERVAL;
    let commits = BackgroundCommits::start(manager.clone(), interval, usize::MAX, || ());
    commits.set_interval(Duration::from_millis(1));
    let mut files = Files::new("larder", 1);
    while manager.durable_generation() < before + 3 {
        files.churn(&manager, 5).unwrap();
    }
    drop(commits);
    manager.commit().unwrap();
    drop(manager);
    image.check("commits in the background");
}

/// A thread with nothing to commit sleeps, however short the interval is.
#[test]
fn the_thread_that_commits_sleeps_while_there_is_nothing_to_commit() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let interval = Duration::from_micros(100);
    let commits = BackgroundCommits::start(manager.clone(), interval, usize::MAX, || ());
    let mut files = Files::new("larder", 1);
    for _ in 0..3 {
        let before = manager.durable_generation();
        files.churn(&manager, 5).unwrap();
        while manager.durable_generation() == before {
            std::thread::yield_now();
        }
        // No thread changes anything from here on.
        manager.commit().unwrap();
        let wakes = commits.wakes();
        std::thread::sleep(Duration::from_millis(50));
        // It may have been told of the last change, and see that the interval is over.
        assert!(commits.wakes() <= wakes + 2, "{wakes} and then {}", commits.wakes());
    }
}

#[test]
fn many_changed_blocks_are_committed_before_the_interval_ends() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let before = manager.durable_generation();
    let hour = Duration::from_secs(3600);
    let most_dirty_bytes = 256 << 10;
    let _commits = BackgroundCommits::start(manager.clone(), hour, most_dirty_bytes, || ());
    let mut files = Files::new("larder", 1);
    while manager.dirty_bytes() <= most_dirty_bytes as u64 {
        files.churn(&manager, 20).unwrap();
    }
    let patience = 6000;
    let is_committed = (0..patience).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        manager.durable_generation() > before
    });
    assert!(is_committed);
}

#[test]
fn an_abort_makes_the_file_system_read_only() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 20).unwrap();
    manager.commit().unwrap();
    let durable = files.sorted();
    files.churn(&manager, 20).unwrap();
    let handle = manager.start(1, Priority::Normal).unwrap();
    handle.abort(Error::ReadOnly("the test says so"));
    drop(handle);
    assert!(matches!(manager.start(1, Priority::Normal).map(drop), Err(Error::Aborted(_))));
    assert!(matches!(manager.commit(), Err(Error::Aborted(_))));
    drop(manager);
    let manager = open(&image.devices);
    assert_eq!(names(&manager, "larder").unwrap(), durable);
    drop(manager);
    image.check("an abort");
}

/// Opens all devices but the first.
fn open_degraded(image: &Blank) -> TransactionManager {
    let open = |file: &std::path::PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(file, Access::ReadWrite).unwrap())
    };
    let options = OpenOptions { write: true, degraded: true, ..OpenOptions::default() };
    let devices = image.devices[1..].iter().map(open).collect();
    open_volume(Arc::new(Volume::open(devices, &options).unwrap())).unwrap()
}

#[test]
fn a_mirror_may_be_missing() {
    let image = Blank::new("-d raid1 -m raid1", &[256 * MIB; 3]);
    let manager = open_degraded(&image);
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 300).unwrap();
    manager.commit().unwrap();
    drop(manager);
    let mount = KernelMount::open(&image.devices[1..], "degraded");
    assert!(files.names.iter().all(|name| mount.path().join(name).exists()));
    drop(mount);
    // The device that missed everything comes back; the kernel's scrub brings it up to date.
    let mount = KernelMount::open(&image.devices, "");
    larder_testkit::oracle::scrub(&mount).unwrap();
    drop(mount);
    image.check("a device that came back");
}

#[test]
fn deleting_a_tree_that_is_in_use_is_refused() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    assert!(manager.drop_tree(5, 10).is_err());
    assert!(manager.drop_tree(4711, 10).is_err());
    assert!(manager.aborted().is_none());
    let directory = Directory::open(&manager, 5);
    let handle = manager.start(8, Priority::Normal).unwrap();
    directory.create(&handle, "still-works").unwrap();
    handle.end().unwrap();
    manager.commit().unwrap();
}

#[test]
fn a_free_space_tree_that_is_not_valid_is_not_believed() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = open(&image.devices);
    manager.change_superblock(|superblock| {
        let flags = superblock.compat_ro_flags() - CompatRoFlags::FREE_SPACE_TREE_VALID;
        superblock.compat_ro_flags = flags.bits().into();
    });
    manager.commit().unwrap();
    drop(manager);
    // From here on the tree is out of date, and free space comes from the extents.
    let manager = open(&image.devices);
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 300).unwrap();
    manager.commit().unwrap();
    drop(manager);
    // The kernel builds it anew.
    let mount = KernelMount::open(&image.devices, "");
    assert!(files.names.iter().all(|name| mount.path().join(name).exists()));
    drop(mount);
    image.check("a new free space tree");
    let manager = open(&image.devices);
    let flags = manager.superblock().compat_ro_flags();
    assert!(flags.contains(CompatRoFlags::FREE_SPACE_TREE_VALID));
    files.churn(&manager, 300).unwrap();
    manager.commit().unwrap();
    drop(manager);
    image.check("keeping it");
}

/// This mkfs.btrfs does not make block group trees, and this `btrfs check` does not know them.
#[test]
fn block_groups_may_have_a_tree_of_their_own() {
    let scratch = Scratch::new();
    let files = vec![scratch.sparse_file("device", 512 * MIB)];
    larder_mkfs::mkfs(&files, &MkfsOptions::default()).unwrap();
    let mut churned = Files::new("larder", 1);
    for round in 0..3 {
        let manager = open(&files);
        let flags = manager.superblock().compat_ro_flags();
        assert!(flags.contains(CompatRoFlags::BLOCK_GROUP_TREE));
        churned.churn(&manager, 200).unwrap();
        // More than the first data block group holds.
        let directory = Directory::open(&manager, 5);
        for index in 0..4 {
            let handle = manager.start(16, Priority::Normal).unwrap();
            let name = format!("data-{round}-{index}");
            let inode = directory.create(&handle, &name).unwrap();
            write_data(&manager, &handle, inode, 16 * MIB).unwrap();
            handle.end().unwrap();
        }
        manager.commit().unwrap();
        if round > 0 {
            for index in 0..4 {
                let handle = manager.start(16, Priority::Deleting).unwrap();
                let name = format!("data-{}-{index}", round - 1);
                directory.remove(&handle, &name).unwrap();
                handle.end().unwrap();
            }
            manager.commit().unwrap();
        }
        drop((directory, manager));
        assert_sound([&load(&files[0])], "block group tree");
        let mount = KernelMount::open(&files, "");
        assert!(churned.names.iter().all(|name| mount.path().join(name).exists()));
        larder_testkit::oracle::scrub(&mount).unwrap();
        let kernels = mount.path().join("kernels");
        std::fs::write(kernels, vec![round; 20 << 20]).unwrap();
    }
}
