//! What is written while a device is missing has as many copies as the others allow, and all that
//! it should have afterwards.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice};
use larder_format::{BlockGroupFlags, Profile, Uuid};
use larder_testkit::command::run;
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Scratch, oracle};
use larder_transaction::space::SpaceKind;
use larder_transaction::{DeviceProgress, Replacement, TransactionManager};
use larder_volume::{OpenOptions, Volume};

use crate::support::{Files, names, open};

const MIB: u64 = 1 << 20;

fn go_on(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn device(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap())
}

fn open_degraded(files: &[PathBuf]) -> TransactionManager {
    let options = OpenOptions { write: true, degraded: true, ..Default::default() };
    let devices = files.iter().map(|file| device(file)).collect();
    let volume = Arc::new(Volume::open(devices, &options).unwrap());
    let cache = Arc::new(larder_btree::BlockCache::new(volume.clone(), 16 << 20));
    TransactionManager::open(volume, cache).unwrap()
}

/// Images in a folder, with these profiles for data and metadata.
fn images(scratch: &Scratch, profile: larder_testkit::Profile, count: usize) -> Vec<PathBuf> {
    let spec = ImageSpec::new("several-devices").devices(&vec![600 * MIB; count]);
    let spec = spec.profiles(profile, profile);
    let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
    let copy = |(number, file): (usize, &PathBuf)| {
        let copy = scratch.path().join(format!("device{number}"));
        run("cp", ["--sparse=always".as_ref(), file.as_os_str(), copy.as_os_str()]).unwrap();
        copy
    };
    image.devices().iter().enumerate().map(copy).collect()
}

/// Makes a block group for data and one for metadata, and returns their profiles.
fn new_profiles(manager: &TransactionManager) -> [Profile; 2] {
    [SpaceKind::Data, SpaceKind::Metadata].map(|kind| manager.space().profile(kind))
}

/// Allocates data until there is a new block group, and commits.
fn fill_a_group(manager: &TransactionManager) {
    let before = manager.space().groups().len();
    let mut taken = Vec::new();
    while manager.space().groups().len() == before {
        taken.push(manager.space().allocate_data(16 * MIB, 4096).unwrap());
    }
    for (start, len_bytes) in taken {
        manager.space().unused(&(start.0..start.0 + len_bytes)).unwrap();
    }
    manager.commit().unwrap();
}

fn profiles(manager: &TransactionManager) -> Vec<(BlockGroupFlags, Profile)> {
    let groups = manager.space().groups();
    let mut all: Vec<_> = groups
        .iter()
        .map(|group| (group.flags() & BlockGroupFlags::TYPES, group.chunk().profile()))
        .collect();
    all.sort_by_key(|(types, profile)| (types.bits(), profile.name()));
    all.dedup();
    all
}

fn assert_all_are(manager: &TransactionManager, wanted: Profile) {
    assert!(profiles(manager).iter().all(|(_, own)| *own == wanted), "{:?}", profiles(manager));
}

#[test]
fn new_block_groups_have_the_copies_that_the_devices_allow() {
    use larder_testkit::Profile as P;
    for (profile, count, expected) in [
        (P::Raid1, 2, [Profile::Dup, Profile::Dup]),
        (P::Raid1, 3, [Profile::Raid1, Profile::Raid1]),
        (P::Raid1c3, 3, [Profile::Raid1, Profile::Raid1]),
    ] {
        let scratch = Scratch::new();
        let files = images(&scratch, profile, count);
        let whole = open(&files);
        let promised = new_profiles(&whole);
        drop(whole);
        let manager = open_degraded(&files[1..]);
        assert_eq!(new_profiles(&manager), expected);
        let mut written = Files::new("larder", 7);
        written.churn(&manager, 100).unwrap();
        fill_a_group(&manager);
        written.churn(&manager, 100).unwrap();
        manager.commit().unwrap();
        drop(manager);
        // The device comes back.
        let manager = open(&files);
        assert_eq!(new_profiles(&manager), promised);
        assert_all_are(&manager, promised[0]);
        assert_eq!(names(&manager, "larder").unwrap(), written.sorted());
        drop(manager);
        oracle::check(&files, true).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The kernel writes block groups with one copy while a device is missing. They get a second one,
/// and the next device may go.
#[test]
fn what_the_kernel_wrote_degraded_is_completed() {
    for is_replaced in [true, false] {
        let scratch = Scratch::new();
        let files = images(&scratch, larder_testkit::Profile::Raid1, 2);
        let kept = &files[1..];
        let mount = KernelMount::open(kept, "degraded,noatime");
        let content = vec![7; 200 * MIB as usize];
        fs::write(mount.path().join("degraded"), &content).unwrap();
        drop(mount);
        let target = scratch.path().join("target");
        File::create(&target).unwrap().set_len(600 * MIB).unwrap();
        let manager = open_degraded(kept);
        let before = profiles(&manager);
        assert!(before.iter().any(|(_, profile)| *profile == Profile::Single), "{before:?}");
        if is_replaced {
            let target = device(&target);
            let wanted = Replacement { devid: 1, target, avoid_source: false };
            manager.replace_device(&wanted, &go_on).unwrap();
        } else {
            manager.add_device(device(&target), Uuid::new_v4()).unwrap();
            manager.remove_device(1, &go_on).unwrap();
        }
        assert_all_are(&manager, Profile::Raid1);
        drop(manager);
        fs::remove_file(&files[1]).unwrap();
        let mount = KernelMount::open(&[target], "degraded,ro");
        assert!(fs::read(mount.path().join("degraded")).unwrap() == content);
    }
}
