//! Devices that are added, removed and resized, and profiles that are converted, while files come and
//! go: `btrfs check` finds nothing, and the kernel sees everything, scrubs it and goes on. So it is
//! after a power cut at any point.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_device::{Access, Device, FileDevice, MemoryDevice, Operation};
use larder_format::{Profile, Uuid};
use larder_power_cuts::{assert_sound, load};
use larder_test_devices::{Fault, FaultDevice, Recording};
use larder_testkit::command::run;
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Manifest, Scratch, oracle};
use larder_transaction::{Conversion, DeviceProgress, Error, TransactionManager};

use crate::cuts::after_power_cuts;
use crate::support::{Files, open, open_devices};

const MIB: u64 = 1 << 20;

/// An image whose devices change.
pub(crate) struct Devices {
    scratch: Scratch,
    pub(crate) files: Vec<PathBuf>,
    before: Manifest,
}

impl Devices {
    /// One that the kernel filled, with snapshots.
    pub(crate) fn new(spec: &ImageSpec) -> Self {
        let image = KernelImage::build(spec, &Content::new(larder_testkit::seed(7)));
        let scratch = Scratch::new();
        let files =
            (0..).zip(image.devices()).map(|(n, file)| copy(file, scratch.path(), n)).collect();
        let before = Manifest::of_tree(image.mount("subvolid=5,noatime").path());
        Self { scratch, files, before }
    }

    fn add(&mut self, manager: &TransactionManager, len_bytes: u64) -> u64 {
        let path = self.scratch.path().join(format!("added{}", self.files.len()));
        File::create(&path).unwrap().set_len(len_bytes).unwrap();
        let device = Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
        self.files.push(path);
        manager.add_device(device, Uuid::new_v4()).unwrap()
    }

    /// Checks a copy of the devices as they are.
    pub(crate) fn check_copy(&self, what: &str) {
        let folder = Scratch::new();
        let copied = (0..).zip(&self.files).map(|(n, file)| copy(file, folder.path(), n));
        let copies: Vec<PathBuf> = copied.collect();
        self.check(&copies, what);
    }

    /// Both checkers and the kernel find nothing wrong, and everything that the kernel wrote is there.
    fn check(&self, files: &[PathBuf], what: &str) {
        oracle::check(files, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mount = KernelMount::open(files, "subvolid=5,noatime");
        let found = Manifest::of_tree(mount.path());
        for (path, entry) in self.before.entries.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(found.entries.get(path), Some(entry), "{what}: {}", path.escape_ascii());
        }
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

fn copy(file: &Path, folder: &Path, number: usize) -> PathBuf {
    let copy = folder.join(format!("device{number}"));
    run("cp", ["--sparse=always".as_ref(), file.as_os_str(), copy.as_os_str()]).unwrap();
    copy
}

/// The profiles that block groups have, with those of data first.
fn profiles(manager: &TransactionManager) -> [Vec<Profile>; 2] {
    let of = |is_data: bool| {
        let groups = manager.space().groups();
        let kind = larder_format::BlockGroupFlags::DATA;
        let groups = groups.iter().filter(|group| group.flags().contains(kind) == is_data);
        let mut profiles: Vec<Profile> = groups.map(|group| group.chunk().profile()).collect();
        profiles.sort_by_key(|profile| profile.name());
        profiles.dedup();
        profiles
    };
    [of(true), of(false)]
}

/// Calls `work` while another thread changes files and commits.
pub(crate) fn while_in_use(manager: &TransactionManager, files: &mut Files, work: impl FnOnce()) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_done.load(Relaxed) {
                files.churn(manager, 40).unwrap();
                manager.commit().unwrap();
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_done.store(true, Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        other.join().unwrap();
    });
}

fn go_on(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn convert(manager: &TransactionManager, data: Profile, metadata: Profile) {
    let wanted = Conversion { data: Some(data), metadata: Some(metadata), system: Some(metadata) };
    let moved = manager.convert(wanted, &go_on).unwrap();
    assert_eq!((moved.damaged_bytes, moved.unreadable_bytes), (0, 0));
    assert_eq!(profiles(manager), [vec![data], vec![metadata]]);
}

#[test]
fn profiles_and_devices_change_while_files_do() {
    let spec = ImageSpec::new("one-device").devices(&[2000 * MIB]);
    let mut devices = Devices::new(&spec);
    let mut files = Files::new("larder", 7);
    let manager = open(&devices.files);
    let second = devices.add(&manager, 2100 * MIB);
    let third = devices.add(&manager, 2200 * MIB);
    let fourth = devices.add(&manager, 2200 * MIB);
    assert_eq!((second, third, fourth), (2, 3, 4));
    for (data, metadata) in [
        (Profile::Raid1, Profile::Raid1),
        (Profile::Raid0, Profile::Raid1c3),
        (Profile::Raid10, Profile::Raid1c4),
        (Profile::Single, Profile::Raid10),
        (Profile::Dup, Profile::Dup),
        (Profile::Raid1, Profile::Raid1),
    ] {
        while_in_use(&manager, &mut files, || convert(&manager, data, metadata));
        manager.commit().unwrap();
        devices.check_copy(&format!("conversion to {data} and {metadata}"));
    }
    while_in_use(&manager, &mut files, || {
        manager.remove_device(1, &go_on).unwrap();
        manager.resize_device(third, 1500 * MIB, &go_on).unwrap();
    });
    manager.commit().unwrap();
    drop(manager);
    let left = devices.files.split_off(1);
    devices.check(&left, "the removal");
    let removed = KernelMount::try_open(&devices.files, "");
    assert!(removed.is_err(), "a device that was removed has no superblock");
    let manager = open(&left);
    manager.remove_device(fourth, &go_on).unwrap();
    let error = manager.remove_device(third, &go_on).unwrap_err();
    assert!(matches!(error, Error::NoPlace { .. }), "{error}");
    let wanted = Conversion { data: Some(Profile::Single), ..Conversion::default() };
    let cancelled = manager.convert(wanted, &|_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    convert(&manager, Profile::Single, Profile::Single);
    manager.remove_device(third, &go_on).unwrap();
    let error = manager.remove_device(second, &go_on).unwrap_err();
    assert!(error.to_string().contains("only device"), "{error}");
    drop(manager);
    devices.check(&left[..1], "the last removal");
}

/// A step of the work, which gets the device that is added.
type Step = fn(&TransactionManager, &Arc<dyn Device>);

/// Work on devices, one step after the other, with changes of files in between.
const STEPS: [(&str, Step); 5] = [
    ("mirroring", |manager, _| convert(manager, Profile::Raid1, Profile::Raid1)),
    ("add", |manager, third| {
        manager.add_device(third.clone(), Uuid::from_u128(3)).unwrap();
    }),
    ("remove", |manager, _| {
        manager.remove_device(1, &go_on).unwrap();
    }),
    ("resize", |manager, _| {
        manager.resize_device(2, 260 * MIB, &go_on).unwrap();
    }),
    ("convert", |manager, _| convert(manager, Profile::Raid0, Profile::Dup)),
];

#[test]
fn power_cuts_in_work_on_devices() {
    let seed = larder_testkit::seed(3);
    let spec = ImageSpec::new("two-devices").devices(&[300 * MIB, 300 * MIB]);
    let image = KernelImage::build(&spec, &Content::new(seed));
    let mut base: Vec<MemoryDevice> = image.devices().iter().map(|file| load(file)).collect();
    base.push(MemoryDevice::new("third", 320 * MIB));
    let recording = Recording::new();
    let attach = |device: &MemoryDevice| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let mut devices: Vec<Arc<dyn Device>> = base.iter().map(attach).collect();
    let third = devices.pop().unwrap();
    let manager = open_devices(devices).unwrap();
    let mut files = Files::new("larder", seed);
    let mut states = vec![(0, files.sorted())];
    let mut parts = Vec::new();
    for (name, step) in STEPS {
        files.churn(&manager, 30).unwrap();
        manager.commit().unwrap();
        let begun = recording.position();
        states.push((begun, files.sorted()));
        step(&manager, &third);
        parts.push((name, begun + 1..recording.position() + 1));
    }
    drop(manager);
    let go_on = |manager: &_| convert(manager, Profile::Single, Profile::Single);
    for (name, part) in parts {
        after_power_cuts(name, &recording, &states, part, (seed, 24), go_on);
    }
}

/// What has no checksum must not turn into other content without a word.
#[test]
fn content_that_cannot_be_read_stays_where_it_is() {
    let spec = ImageSpec::new("no-checksums").devices(&[400 * MIB, 400 * MIB]);
    let spec = spec
        .mount_option("nodatasum")
        .profiles(larder_testkit::Profile::Single, larder_testkit::Profile::Single);
    let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(5)));
    let memory: Vec<_> = image.devices().iter().map(|file| Arc::new(load(file))).collect();
    let faulty: Vec<_> =
        memory.iter().map(|device| Arc::new(FaultDevice::new(device.clone()))).collect();
    let devices = faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let manager = open_devices(devices).unwrap();
    let groups = manager.space().groups();
    let data = larder_format::BlockGroupFlags::DATA;
    let used = groups.iter().find(|group| group.flags().contains(data) && group.used() > 0);
    let chunk = used.expect("the image has data").chunk();
    let stripe = chunk.stripes()[0];
    let range = stripe.physical.0..stripe.physical.0 + chunk.bytes_per_stripe();
    let device = &faulty[stripe.devid as usize - 1];
    device.inject(Fault::fail(Operation::Read).within(range));
    let wanted = Conversion { data: Some(Profile::Raid1), ..Conversion::default() };
    let error = manager.convert(wanted, &go_on).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert_eq!(manager.space().group_at(chunk.logical()).unwrap().chunk(), chunk);
    manager.commit().unwrap();
    device.heal();
    assert_sound(memory.iter().map(|device| &**device), "a move that failed");
    manager.convert(wanted, &go_on).unwrap();
    drop(manager);
    assert_sound(memory.iter().map(|device| &**device), "the move");
}
