//! Devices that refuse writes or flushes while others have a copy of everything: the file system
//! goes on without them, loses nothing that it acknowledged, and trusts them again only when they
//! have everything.

use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder::{Filesystem, OpenOptions, Subvolume, WritePolicy};
use larder_device::Operation;
use larder_format::{BlockGroupFlags, Profile};
use larder_power_cuts::{assert_sound, store, survival};
use larder_test_devices::{Fault, FaultDevice, Recording};
use larder_testkit::{KernelMount, Manifest, Scratch, assert_same, oracle};
use larder_volume::Volume;

use crate::memory::Memory;
use crate::support;

const LEN: usize = 128 << 10;

/// Files are overwritten in place and have no checksums.
fn open(devices: Vec<Arc<dyn Device>>, write: bool) -> Filesystem {
    let policy = WritePolicy { datacow: false, ..WritePolicy::default() };
    let options = OpenOptions::new().degraded(true).commit_interval(None).write_policy(policy);
    options.write(write).open_devices(devices).unwrap_or_else(|error| panic!("{error}"))
}

/// Devices with faults to come.
struct Failing {
    devices: Vec<Arc<FaultDevice>>,
    recording: Recording,
}

impl Failing {
    fn new(memory: &Memory) -> Self {
        let recording = Recording::new();
        let failing = |device: &Arc<MemoryDevice>| {
            Arc::new(FaultDevice::new(Arc::new(recording.attach(device))))
        };
        Self { devices: memory.0.iter().map(failing).collect(), recording }
    }

    fn open(&self) -> Filesystem {
        open(self.devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect(), true)
    }

    /// What is on the devices now.
    fn now(&self) -> Memory {
        let mut replay = self.recording.replay();
        replay.advance_to(self.recording.position());
        Memory(replay.images().into_iter().map(Arc::new).collect())
    }

    /// What a power cut leaves that came at a position, without most of what was not flushed.
    fn power_cut(&self, position: usize) -> Memory {
        let mut replay = self.recording.replay();
        replay.advance_to(position);
        let left = replay.power_cut(survival(position as u64));
        Memory(left.into_iter().map(Arc::new).collect())
    }
}

fn top(fs: &Filesystem) -> Subvolume {
    fs.subvolume("/").unwrap()
}

fn value(fs: &Filesystem) -> u8 {
    let mut data = vec![0; LEN];
    assert_eq!(top(fs).open_file("plain").unwrap().read_at(&mut data, 0).unwrap(), LEN);
    assert!(data.iter().all(|byte| *byte == data[0]), "the values are mixed");
    data[0]
}

fn stale(fs: &Filesystem) -> usize {
    fs.devices().iter().filter(|device| device.is_stale).count()
}

/// A file system whose file has the value 1.
fn made(data: Profile, metadata: Profile, devices: usize) -> Memory {
    let made = Memory::new(data, metadata, devices);
    let fs = open(made.devices(), true);
    let file = top(&fs).create("plain", 0o644).unwrap();
    file.write_at(&vec![1; LEN], 0).unwrap();
    fs.sync().unwrap();
    made
}

/// Gives the file one value after the other. Calls `acknowledged` when one is durable.
fn give_values(fs: &Filesystem, mut acknowledged: impl FnMut(u8)) {
    let file = top(fs).open_file("plain").unwrap();
    for value in 2..8 {
        file.write_at(&vec![value; LEN], 0).unwrap();
        if value % 3 == 1 {
            let name = format!("new-{value}");
            drop(top(fs).remove_file(&name));
            let summed = top(fs).create(name, 0o644).unwrap();
            summed.write_at(&vec![value; LEN], 0).unwrap();
            fs.sync().unwrap();
        } else {
            file.sync().unwrap();
        }
        assert_eq!(self::value(fs), value);
        acknowledged(value);
    }
}

/// Whatever call of one device fails, once or from then on: nothing is refused, and nothing that was
/// acknowledged is lost by a power cut, after which the device is there again.
#[test]
fn one_mirror_that_fails_is_no_loss() {
    let memory = made(Profile::Raid1, Profile::Raid1, 2);
    for (failing, operation) in [0, 1]
        .into_iter()
        .flat_map(|device| [(device, Operation::Write), (device, Operation::Flush)])
    {
        for calls in [1, u64::MAX] {
            let mut struck = 0;
            for skipped in 0.. {
                let copy = memory.copy();
                let devices = Failing::new(&copy);
                let fs = devices.open();
                let device = &devices.devices[failing];
                device.inject(Fault::fail(operation).after(skipped).times(calls));
                let mut acknowledged = Vec::new();
                give_values(&fs, |value| acknowledged.push((devices.recording.position(), value)));
                drop(fs);
                if device.strikes() == 0 {
                    break;
                }
                struck += 1;
                println!("device {failing}: {operation:?} {skipped} fails, {calls} times");
                for (position, value) in acknowledged {
                    let left = devices.power_cut(position);
                    assert_eq!(self::value(&open(left.devices(), false)), value);
                    let fs = open(left.devices(), true);
                    assert_eq!((self::value(&fs), stale(&fs)), (value, 0));
                    drop(fs);
                    for alone in left.devices() {
                        assert_eq!(self::value(&open(vec![alone], false)), value);
                    }
                }
            }
            assert!(struck > 5, "{struck} calls were struck");
        }
    }
}

/// The device is brought up to date while the file system is in use, and has everything then.
#[test]
fn a_device_comes_back_in_use() {
    for (profile, devices, lost) in
        [(Profile::Raid1, 2, 1), (Profile::Raid1c3, 3, 2), (Profile::Raid10, 4, 1)]
    {
        let memory = made(profile, profile, devices);
        let failing = Failing::new(&memory);
        let fs = failing.open();
        let device = &failing.devices[devices - 1];
        device.inject(Fault::fail(Operation::Write));
        give_values(&fs, |_| ());
        assert_eq!(stale(&fs), 1);
        let errors = fs.device_errors().unwrap();
        assert!(errors[devices - 1].writes > 0, "{errors:?}");
        assert!(!fs.bring_up_to_date(&|_| ()).unwrap(), "it refuses what it missed");
        give_values(&fs, |_| ());
        device.heal();
        fs.complete_redundancy(&|_| ()).unwrap();
        assert_eq!(stale(&fs), 0);
        give_values(&fs, |_| ());
        fs.sync().unwrap();
        let manifest = support::manifest(&fs);
        drop(fs);
        let memory = failing.now();
        let lost = memory.devices().split_off(lost);
        assert_same(&manifest, &support::manifest(&open(lost, false)));
        assert_sound(memory.0.iter().map(|device| &**device), "it came back");
        let scratch = Scratch::new();
        let store = |(number, device): (usize, &Arc<MemoryDevice>)| {
            let path = scratch.path().join(format!("device-{number}"));
            store(device, &path);
            path
        };
        let files: Vec<_> = memory.0.iter().enumerate().map(store).collect();
        let mount = KernelMount::open(&files, "noatime");
        let scrubbed = oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
        assert!(scrubbed.contains("no errors found"), "{scrubbed}");
        assert_same(&manifest, &Manifest::of_tree(mount.path()));
    }
}

/// Chunks that are made meanwhile avoid the device, and have their profile when it is back.
#[test]
fn new_chunks_avoid_the_device() {
    let memory = made(Profile::Raid1, Profile::Raid1, 3);
    let failing = Failing::new(&memory);
    let fs = failing.open();
    failing.devices[0].inject(Fault::fail(Operation::Write));
    give_values(&fs, |_| ());
    assert_eq!(stale(&fs), 1);
    let before = fs.devices()[0].allocated_bytes;
    let large = top(&fs).create("large", 0o644).unwrap();
    large.write_at(&vec![3; 96 << 20], 0).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.devices()[0].allocated_bytes, before);
    drop((large, fs));
    let memory = failing.now();
    let has_all = |devices| {
        let fs = open(devices, false);
        assert_eq!(value(&fs), 7);
        let mut data = vec![0; 96 << 20];
        top(&fs).open_file("large").unwrap().read_at(&mut data, 0).unwrap();
        assert!(data.iter().all(|byte| *byte == 3));
    };
    has_all(memory.devices().split_off(1));
    assert_eq!(stale(&open(memory.devices(), true)), 0);
    for lost in 0..3 {
        let mut left = memory.devices();
        left.remove(lost);
        has_all(left);
    }
}

/// What no other device has is not done without.
#[test]
fn a_device_that_is_needed_is_not_left_out() {
    for (data, metadata, devices) in [
        (Profile::Single, Profile::Raid1, 2),
        (Profile::Raid0, Profile::Raid1, 2),
        (Profile::Single, Profile::Dup, 1),
    ] {
        let memory = made(data, metadata, devices);
        let failing = Failing::new(&memory);
        let fs = failing.open();
        for device in &failing.devices {
            device.inject(Fault::fail(Operation::Flush));
        }
        let file = top(&fs).open_file("plain").unwrap();
        file.write_at(&vec![2; LEN], 0).unwrap();
        assert!(file.sync().is_err());
        assert!(fs.health().made_read_only.is_some());
        drop((file, fs));
        let memory = failing.now();
        assert_sound(memory.0.iter().map(|device| &**device), "the last commit");
    }
}

/// Two devices of a mirror never go.
#[test]
fn the_last_copy_is_not_left_out() {
    let memory = made(Profile::Raid1, Profile::Raid1, 2);
    let failing = Failing::new(&memory);
    let fs = failing.open();
    failing.devices[1].inject(Fault::fail(Operation::Write));
    give_values(&fs, |_| ());
    failing.devices[0].inject(Fault::fail(Operation::Write));
    let file = top(&fs).open_file("plain").unwrap();
    file.write_at(&vec![9; LEN], 0).unwrap();
    assert!(file.sync().is_err());
    assert!(fs.sync().is_err());
    assert_eq!(stale(&fs), 1);
    drop((file, fs));
    let fs = open(failing.now().devices(), true);
    assert_eq!((value(&fs), stale(&fs)), (7, 0));
}

/// One place refuses a copy of tree blocks, and the other copy, on the same device, takes it.
#[test]
fn one_of_two_copies_on_one_device_is_enough_for_trees() {
    let memory = made(Profile::Single, Profile::Dup, 1);
    let volume = Volume::open(memory.devices(), &larder_volume::OpenOptions::default()).unwrap();
    let chunks = volume.chunks();
    let metadata = chunks.iter().find(|chunk| chunk.flags().contains(BlockGroupFlags::METADATA));
    let metadata = metadata.unwrap();
    for stripe in metadata.stripes() {
        let failing = Failing::new(&memory);
        let fs = failing.open();
        let place = stripe.physical.0..stripe.physical.0 + metadata.bytes_per_stripe();
        failing.devices[0].inject(Fault::fail(Operation::Write).within(place.clone()));
        give_values(&fs, |_| ());
        assert!(failing.devices[0].strikes() > 0);
        let manifest = support::manifest(&fs);
        drop(fs);
        let fs = open(failing.now().devices(), true);
        assert_eq!(value(&fs), 7);
        assert_same(&manifest, &support::manifest(&fs));
    }
}
