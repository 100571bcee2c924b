//! A device is replaced while files come and go: the kernel and both checkers find everything on
//! the target. What one side began, the other ends. So it is after a power cut at any point.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice, MemoryDevice, Operation};
use larder_format::item::replace_state;
use larder_power_cuts::{assert_sound, assert_sound_to_btrfs, load, survival};
use larder_test_devices::{Fault, FaultDevice, Recording};
use larder_testkit::command::run;
use larder_testkit::{
    Content, ImageSpec, KernelImage, KernelMount, LoopDevice, Manifest, Profile, Scratch, oracle,
};
use larder_transaction::{DeviceProgress, Error, Replacement, TransactionManager};

use crate::cuts::positions;
use crate::support::{Files, Random, names, open, open_devices};

const MIB: u64 = 1 << 20;

fn go_on(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn stop(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Break(())
}

fn with(target: Arc<dyn Device>) -> Replacement {
    Replacement { devid: 1, target, avoid_source: false }
}

fn device(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap())
}

/// Two devices that the kernel filled, and a target.
struct Images {
    _scratch: Scratch,
    first: PathBuf,
    second: PathBuf,
    target: PathBuf,
    before: Manifest,
}

impl Images {
    fn new(data: Profile, target_bytes: u64) -> Self {
        let spec = ImageSpec::new("two-devices").devices(&[600 * MIB, 600 * MIB]);
        let spec = spec.profiles(data, Profile::Raid1);
        let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
        let scratch = Scratch::new();
        let copy = |file: &Path, name: &str| {
            let copy = scratch.path().join(name);
            run("cp", ["--sparse=always".as_ref(), file.as_os_str(), copy.as_os_str()]).unwrap();
            copy
        };
        let first = copy(&image.devices()[0], "first");
        let second = copy(&image.devices()[1], "second");
        let target = scratch.path().join("target");
        File::create(&target).unwrap().set_len(target_bytes).unwrap();
        let before = Manifest::of_tree(image.mount("subvolid=5,noatime").path());
        Self { _scratch: scratch, first, second, target, before }
    }

    fn all(&self) -> Vec<PathBuf> {
        vec![self.first.clone(), self.second.clone(), self.target.clone()]
    }

    /// The target has the place, and everything is there.
    fn check_replaced(&self) {
        let now = [self.target.clone(), self.second.clone()];
        oracle::check(&now, true).unwrap_or_else(|error| panic!("{error}"));
        assert!(oracle::dump_super(&self.first).is_err(), "its superblocks are gone");
        let mount = KernelMount::open(&now, "subvolid=5,noatime");
        let found = Manifest::of_tree(mount.path());
        for (path, entry) in self.before.entries.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(found.entries.get(path), Some(entry), "{}", path.escape_ascii());
        }
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn the_target_has_the_place_and_everything() {
    for (data, target_bytes) in [(Profile::Raid1, 700), (Profile::Single, 500)] {
        let images = Images::new(data, target_bytes * MIB);
        let manager = open(&[images.first.clone(), images.second.clone()]);
        let uuid = manager.volume().device(1).unwrap().uuid();
        let mut files = Files::new("larder", 7);
        files.churn(&manager, 40).unwrap();
        let moved = manager.replace_device(&with(device(&images.target)), &go_on).unwrap();
        assert_eq!((moved.damaged_bytes, moved.unreadable_bytes), (0, 0));
        assert_eq!(manager.volume().device(1).unwrap().uuid(), uuid);
        let item = manager.replace_item().unwrap().unwrap();
        assert_eq!(item.replace_state.get(), replace_state::FINISHED);
        files.churn(&manager, 40).unwrap();
        manager.commit().unwrap();
        assert_eq!(names(&manager, "larder").unwrap(), files.sorted());
        drop(manager);
        images.check_replaced();
    }
}

#[test]
fn a_missing_device_is_replaced() {
    let images = Images::new(Profile::Raid1, 600 * MIB);
    std::fs::remove_file(&images.first).unwrap();
    File::create(&images.first).unwrap().set_len(MIB).unwrap();
    let options = larder_volume::OpenOptions { write: true, degraded: true, ..Default::default() };
    let volume = larder_volume::Volume::open(vec![device(&images.second)], &options).unwrap();
    let volume = Arc::new(volume);
    let cache = Arc::new(larder_btree::BlockCache::new(volume.clone(), 16 << 20));
    let manager = TransactionManager::open(volume, cache).unwrap();
    manager.replace_device(&with(device(&images.target)), &go_on).unwrap();
    drop(manager);
    images.check_replaced();
}

#[test]
fn the_kernel_goes_on_with_what_was_interrupted() {
    let images = Images::new(Profile::Raid1, 600 * MIB);
    let manager = open(&[images.first.clone(), images.second.clone()]);
    let mut files = Files::new("larder", 7);
    files.churn(&manager, 40).unwrap();
    let error = manager.replace_device(&with(device(&images.target)), &stop).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    // What is written meanwhile is on the target too.
    files.churn(&manager, 40).unwrap();
    let refused = manager.remove_device(2, &go_on).unwrap_err().to_string();
    assert!(refused.contains("replace of device 1 is unfinished"), "{refused}");
    manager.commit().unwrap();
    drop(manager);
    let mount = KernelMount::open(&images.all(), "subvolid=5,noatime");
    let path = mount.path().display().to_string();
    let status = || run("btrfs", ["replace", "status", "-1", &path]).unwrap();
    while !status().contains("finished on") {
        std::thread::yield_now();
    }
    drop(mount);
    images.check_replaced();
}

/// Images with a replace of the kernel that a remount for reading interrupts.
fn interrupted_by_kernel() -> Images {
    for _ in 0..10 {
        let images = Images::new(Profile::Single, 600 * MIB);
        let mount = KernelMount::open(&[images.first.clone(), images.second.clone()], "noatime");
        let path = mount.path().display().to_string();
        // So that it takes a while.
        std::fs::write(mount.path().join("large"), vec![7; 250 * MIB as usize]).unwrap();
        run("sync", ["-f", &path]).unwrap();
        let target = LoopDevice::attach(&images.target);
        let device = target.path().display().to_string();
        run("btrfs", ["replace", "start", "1", &device, &path]).unwrap();
        run("mount", ["-o", "remount,ro", &path]).unwrap();
        let status = run("btrfs", ["replace", "status", "-1", &path]).unwrap();
        if status.contains("suspended on") {
            drop(mount);
            // The target will be on another loop device.
            run("btrfs", ["device", "scan", "--forget", &device]).unwrap();
            return images;
        }
        assert!(status.contains("finished on"), "{status}");
    }
    panic!("the kernel was always faster");
}

#[test]
fn what_the_kernel_began_is_ended() {
    for is_resumed in [true, false] {
        let images = interrupted_by_kernel();
        let manager = open(&images.all());
        assert!(manager.replace_item().unwrap().unwrap().is_unfinished());
        let mut files = Files::new("larder", 7);
        files.churn(&manager, 40).unwrap();
        if is_resumed {
            manager.resume_replace(&go_on).unwrap();
            drop(manager);
            images.check_replaced();
        } else {
            manager.cancel_replace().unwrap();
            drop(manager);
            assert!(oracle::dump_super(&images.target).is_err(), "its superblocks are gone");
            let left = [images.first.clone(), images.second.clone()];
            oracle::check(&left, true).unwrap_or_else(|error| panic!("{error}"));
            KernelMount::open(&left, "");
        }
    }
}

/// The kernel's cursor is at the end of the stripe in which it was told to stop.
#[test]
fn the_last_stripe_before_the_cursor_is_copied_again() {
    let images = Images::new(Profile::Single, 600 * MIB);
    let manager = open(&[images.first.clone(), images.second.clone()]);
    let cursor = || manager.replace_item().ok().flatten().map_or(0, |item| item.cursor_left.get());
    let stop_after_some = |_| match cursor() {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    manager.replace_device(&with(device(&images.target)), &stop_after_some).unwrap_err();
    let end = cursor();
    assert!(end > 0);
    drop(manager);
    let target = File::options().write(true).open(&images.target).unwrap();
    target.write_all_at(&vec![0; 1 << 20], end - MIB).unwrap();
    let manager = open(&images.all());
    manager.resume_replace(&go_on).unwrap();
    drop(manager);
    images.check_replaced();
}

/// What is written without the target makes the replace begin anew.
#[test]
fn a_target_that_missed_writes_gets_them() {
    let images = interrupted_by_kernel();
    let manager = open(&[images.first.clone(), images.second.clone()]);
    let mut files = Files::new("larder", 7);
    files.churn(&manager, 400).unwrap();
    manager.commit().unwrap();
    let item = manager.replace_item().unwrap().unwrap();
    assert!(item.is_unfinished() && item.cursor_left.get() == 0);
    let error = manager.resume_replace(&go_on).unwrap_err().to_string();
    assert!(error.contains("is not there"), "{error}");
    drop(manager);
    let manager = open(&images.all());
    manager.resume_replace(&go_on).unwrap();
    assert_eq!(names(&manager, "larder").unwrap(), files.sorted());
    drop(manager);
    images.check_replaced();
}

#[test]
fn a_target_that_fails_takes_no_place() {
    let images = Images::new(Profile::Raid1, 600 * MIB);
    let manager = open(&[images.first.clone(), images.second.clone()]);
    let target = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("target", 600 * MIB))));
    target.inject(Fault::fail(Operation::Write).within(100 * MIB..600 * MIB));
    let error = manager.replace_device(&with(target), &go_on).unwrap_err().to_string();
    assert!(error.contains("fails: the replace is cancelled"), "{error}");
    let item = manager.replace_item().unwrap().unwrap();
    assert_eq!(item.replace_state.get(), replace_state::CANCELED);
    // The file system goes on.
    manager.replace_device(&with(device(&images.target)), &go_on).unwrap();
    drop(manager);
    images.check_replaced();
}

/// The members of the file system after a power cut: the target once it has a superblock.
fn with_superblocks(devices: Vec<MemoryDevice>) -> Vec<MemoryDevice> {
    devices.into_iter().filter(|device| larder_volume::scan(device).is_ok()).collect()
}

#[test]
fn power_cuts_in_a_replace() {
    let seed = larder_testkit::seed(3);
    let spec = ImageSpec::new("two-devices").devices(&[300 * MIB, 300 * MIB]);
    let spec = spec.profiles(Profile::Single, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(seed));
    let mut base: Vec<MemoryDevice> = image.devices().iter().map(|file| load(file)).collect();
    base.push(MemoryDevice::new("target", 320 * MIB));
    let recording = Recording::new();
    let attach = |device: &MemoryDevice| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let mut devices: Vec<Arc<dyn Device>> = base.iter().map(attach).collect();
    let target = devices.pop().unwrap();
    let manager = open_devices(devices).unwrap();
    let mut files = Files::new("larder", seed);
    files.churn(&manager, 30).unwrap();
    manager.commit().unwrap();
    let mut states = vec![(recording.position(), files.sorted())];
    manager.replace_device(&with(target.clone()), &stop).unwrap_err();
    files.churn(&manager, 30).unwrap();
    manager.commit().unwrap();
    states.push((recording.position(), files.sorted()));
    manager.cancel_replace().unwrap();
    manager.replace_device(&with(target), &go_on).unwrap();
    files.churn(&manager, 30).unwrap();
    manager.commit().unwrap();
    states.push((recording.position(), files.sorted()));
    drop(manager);
    let (mut random, mut cuts, mut resumed) = (Random(seed), 0, 0);
    let mut replay = recording.replay();
    let part = states[0].0 + 1..recording.position() + 1;
    for position in positions(&recording, part, 60, &mut random) {
        replay.advance_to(position);
        let what = format!("at {position}");
        let devices = with_superblocks(replay.power_cut(survival(random.next())));
        let shared: Vec<Arc<MemoryDevice>> = devices.into_iter().map(Arc::new).collect();
        let again = || shared.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let manager = open_devices(again()).unwrap();
        let promised = states.iter().rposition(|(noted, _)| *noted <= position).unwrap();
        let found = names(&manager, "larder").unwrap();
        let may_be = states[promised..].iter().take(2).any(|(_, names)| *names == found);
        assert!(may_be, "{what}: {} files", found.len());
        // The work goes on from here, if the target is there.
        let is_unfinished = manager.replace_item().unwrap().is_some_and(|it| it.is_unfinished());
        let has_target = manager.volume().device(1).unwrap().has_twin();
        if is_unfinished && has_target && cuts % 2 == 0 {
            manager.resume_replace(&go_on).unwrap();
            resumed += 1;
        } else if is_unfinished {
            manager.cancel_replace().unwrap();
        }
        manager.commit().unwrap();
        let members = manager.volume().devices();
        let uuids: Vec<_> = members.iter().map(|member| member.uuid()).collect();
        drop((members, manager));
        let has_place = |device: &&Arc<MemoryDevice>| {
            let found = larder_volume::scan(&***device);
            found.is_ok_and(|found| uuids.contains(&found.superblock.dev_item.uuid()))
        };
        let newest = |device: &Arc<MemoryDevice>| {
            larder_volume::scan(&**device).map_or(0, |found| found.superblock.generation.get())
        };
        let last = shared.iter().filter(has_place).map(newest).max().unwrap();
        let left: Vec<MemoryDevice> = shared
            .iter()
            .filter(has_place)
            .filter(|device| newest(device) == last)
            .map(|device| device.snapshot())
            .collect();
        assert_eq!(left.len(), 2, "{what}");
        assert_sound(&left, &what);
        if cuts % 32 == 0 {
            assert_sound_to_btrfs(&left, &what);
        }
        cuts += 1;
    }
    println!("{cuts} power cuts, {resumed} replaces that went on");
    assert!(resumed > 5, "{cuts} {resumed}");
}
