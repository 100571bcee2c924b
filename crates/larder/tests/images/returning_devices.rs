//! Devices that were missing while others were written come back with old content. It is never read
//! in place of newer content, and the devices are brought up to date before they count as any
//! other.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use larder::device::{Device, MemoryDevice};
use larder::{Filesystem, OpenOptions, ResyncProgress, WritePolicy};
use larder_device::Operation;
use larder_format::{BlockGroupFlags, Profile};
use larder_power_cuts::{assert_sound, load, store, survival};
use larder_test_devices::{Fault, FaultDevice, Recording};
use larder_testkit::{
    Content, ImageSpec, KernelImage, KernelMount, Manifest, Scratch, assert_same, oracle,
};
use larder_volume::{Chunk, Volume};

use crate::memory::Memory;
use crate::support;

const LEN: usize = 4 << 20;

/// New files are overwritten in place and have no checksums.
fn options() -> OpenOptions {
    let policy = WritePolicy { datacow: false, ..WritePolicy::default() };
    OpenOptions::new().degraded(true).commit_interval(None).write_policy(policy)
}

#[track_caller]
fn open(devices: Vec<Arc<dyn Device>>, write: bool) -> Filesystem {
    options().write(write).open_devices(devices).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn assert_has(fs: &Filesystem, value: u8) {
    let top = fs.subvolume("/").unwrap();
    for name in ["plain", "summed"] {
        let mut data = vec![0; LEN];
        let file = top.open_file(name).unwrap();
        assert_eq!(file.read_at(&mut data, 0).unwrap(), LEN, "{name}");
        let wrong = data.iter().position(|byte| *byte != value);
        assert_eq!(wrong, None, "{name} has what it was not given last");
    }
}

/// Writes a file without checksums in place, and one that has some.
fn write(fs: &Filesystem, value: u8) {
    let top = fs.subvolume("/").unwrap();
    for name in ["plain", "summed"] {
        let file = top.open_file(name).unwrap();
        file.write_at(&vec![value; LEN], 0).unwrap();
    }
    top.create(format!("new-{value}"), 0o644).unwrap();
}

/// A file system whose files have the value 1.
fn made(data: Profile, metadata: Profile, devices: usize) -> Memory {
    let made = Memory::new(data, metadata, devices);
    let fs = open(made.devices(), true);
    let top = fs.subvolume("/").unwrap();
    top.create("plain", 0o644).unwrap();
    let policy = WritePolicy::default();
    fs.sync().unwrap();
    drop((top, fs));
    let options = options().write(true).write_policy(policy);
    let fs = options.open_devices(made.devices()).unwrap();
    fs.subvolume("/").unwrap().create("summed", 0o644).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let fs = open(made.devices(), true);
    write(&fs, 1);
    fs.sync().unwrap();
    made
}

/// As above, after the value 2 was written without the last device.
fn returned(data: Profile, metadata: Profile, devices: usize) -> Memory {
    let made = made(data, metadata, devices);
    let mut left = made.devices();
    left.pop();
    let fs = open(left, true);
    write(&fs, 2);
    fs.sync().unwrap();
    made
}

fn is_stale(fs: &Filesystem) -> bool {
    fs.devices().iter().any(|device| device.is_stale)
}

/// What is read without as many of the original devices as can be lost.
#[track_caller]
fn assert_last_has_all(memory: &Memory, lost: usize, value: u8) {
    let fs = open(memory.devices().split_off(lost), false);
    assert!(!is_stale(&fs));
    assert_has(&fs, value);
}

#[test]
fn a_device_that_returns_is_healed_before_it_is_trusted() {
    let profiles = [
        (Profile::Raid1, 2, 1),
        (Profile::Raid1c3, 3, 2),
        (Profile::Raid1c4, 4, 3),
        (Profile::Raid10, 4, 1),
    ];
    for (profile, devices, lost) in profiles {
        let memory = returned(profile, profile, devices);
        let fs = open(memory.devices(), false);
        assert!(is_stale(&fs));
        assert_has(&fs, 2);
        let manifest = support::manifest(&fs);
        drop(fs);
        let fs = open(memory.devices(), true);
        assert!(!is_stale(&fs));
        assert_has(&fs, 2);
        drop(fs);
        assert_last_has_all(&memory, lost, 2);
        assert_sound(memory.0.iter().map(|device| &**device), "healed");

        // The kernel reads every copy, and finds nothing to correct.
        let scratch = Scratch::new();
        let store = |(number, device): (usize, &Arc<MemoryDevice>)| {
            let path = scratch.path().join(format!("device-{number}"));
            store(device, &path);
            path
        };
        let files: Vec<_> = memory.0.iter().enumerate().map(store).collect();
        oracle::check(&files, true).unwrap_or_else(|error| panic!("{error}"));
        let mount = KernelMount::open(&files, "noatime");
        let scrubbed = oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
        assert!(scrubbed.contains("no errors found"), "{scrubbed}");
        assert_same(&manifest, &Manifest::of_tree(mount.path()));
    }
}

/// Data that only the missing device has cannot have changed meanwhile, and is read.
#[test]
fn data_without_another_copy_is_right() {
    let memory = made(Profile::Raid0, Profile::Raid1, 2);
    let old: Vec<_> = memory.0[1..].iter().map(|device| device.snapshot()).collect();
    let fs = open(memory.devices(), true);
    fs.subvolume("/").unwrap().create("new", 0o644).unwrap();
    fs.sync().unwrap();
    drop(fs);
    // The last commit is lost on one device: it was cut off before its superblock.
    let mut devices = memory.devices();
    devices[1] = Arc::new(old.into_iter().next().unwrap());
    assert_has(&open(devices.clone(), false), 1);
    let fs = open(devices, true);
    assert!(!is_stale(&fs));
    assert_has(&fs, 1);
}

/// Progress of healing is reported from the beginning to the end, and only if there is healing. If
/// the process is killed halfway, the returned device stays untrusted, and is healed the next time.
#[test]
fn healing_tells_how_far_it_has_come_and_may_be_killed_halfway() {
    let memory = returned(Profile::Raid1, Profile::Raid1, 2);
    let told: Arc<Mutex<Vec<ResyncProgress>>> = Arc::default();
    let halfway: Arc<Mutex<Option<Vec<Arc<MemoryDevice>>>>> = Arc::default();
    let options = {
        let (told, halfway) = (told.clone(), halfway.clone());
        let devices = memory.0.clone();
        options().write(true).resync_progress(move |now| {
            told.lock().unwrap().push(now);
            let mut halfway = halfway.lock().unwrap();
            if now.done_bytes * 2 > now.total_bytes && halfway.is_none() {
                // All of it was written; nothing was flushed after it.
                let killed = devices.iter().map(|device| Arc::new(device.snapshot()));
                *halfway = Some(killed.collect());
            }
        })
    };
    let fs = options.open_devices(memory.devices()).unwrap();
    assert!(!is_stale(&fs));
    drop(fs);
    let healing = std::mem::take(&mut *told.lock().unwrap());
    assert!(healing.is_sorted_by_key(|now| now.done_bytes), "{healing:?}");
    assert!(healing.iter().all(|now| now.total_bytes == healing[0].total_bytes), "{healing:?}");
    let (first, last) = (healing[0], healing[healing.len() - 1]);
    assert!(first.done_bytes * 4 < first.total_bytes, "it began with {first:?}");
    assert_eq!(last.done_bytes, last.total_bytes);
    assert!(last.total_bytes >= 2 * LEN as u64, "{last:?}");
    drop(options.open_devices(memory.devices()).unwrap());
    assert_eq!(*told.lock().unwrap(), [], "nothing was to be healed");

    let killed = Memory(halfway.lock().unwrap().take().expect("it was halfway once"));
    let fs = open(killed.devices(), false);
    assert!(is_stale(&fs), "it is trusted with half of what it missed");
    assert_has(&fs, 2);
    drop(fs);
    drop(options.open_devices(killed.devices()).unwrap());
    assert!(!told.lock().unwrap().is_empty(), "healing begins again");
    assert_last_has_all(&killed, 1, 2);
    assert_sound(killed.0.iter().map(|device| &**device), "healed after it was killed");
}

/// After a power cut at any point, healing begins again, or all of it was done.
#[test]
fn healing_that_is_interrupted_begins_again() {
    let memory = returned(Profile::Raid1, Profile::Raid1, 2);
    let recording = Recording::new();
    let attach = |device: &Arc<MemoryDevice>| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let fs = open(memory.0.iter().map(attach).collect(), true);
    let healed = recording.position();
    drop(fs);
    assert!(healed > 8, "much was copied: {healed} steps");
    for position in 0..=healed {
        let mut replay = recording.replay();
        replay.advance_to(position);
        let left =
            Memory(replay.power_cut(survival(position as u64)).into_iter().map(Arc::new).collect());
        assert_has(&open(left.devices(), false), 2);
        assert_has(&open(left.devices(), true), 2);
        assert_last_has_all(&left, 1, 2);
    }
}

/// A file that was synced while a device was missing is in a log only, and the generation is that
/// of the commit before.
#[test]
fn changes_logged_without_a_device_count() {
    let memory = made(Profile::Raid1, Profile::Raid1, 2);
    let mut left = memory.devices();
    left.pop();
    let fs = open(left, true);
    let file = fs.subvolume("/").unwrap().open_file("plain").unwrap();
    file.write_at(&vec![2; LEN], 0).unwrap();
    file.sync().unwrap();
    drop((file, fs));
    let plain_has = |fs: &Filesystem, value: u8| {
        let file = fs.subvolume("/").unwrap().open_file("plain").unwrap();
        let mut data = vec![0; LEN];
        assert_eq!(file.read_at(&mut data, 0).unwrap(), LEN);
        assert!(data.iter().all(|byte| *byte == value));
    };
    plain_has(&open(memory.devices(), false), 2);
    plain_has(&open(memory.devices(), true), 2);
    plain_has(&open(memory.devices().split_off(1), false), 2);
}

/// Without a checksum nothing tells that the content of a returned device is right: it is not read,
/// and the device stays stale until no such data is left.
#[test]
fn unverifiable_stale_data_is_not_read() {
    let memory = returned(Profile::Raid1, Profile::Raid1, 2);
    let volume = Volume::open(memory.devices(), &larder_volume::OpenOptions::default()).unwrap();
    let chunks = volume.chunks();
    let is_data = |chunk: &&Arc<Chunk>| chunk.flags().contains(BlockGroupFlags::DATA);
    let chunk = chunks.iter().find(is_data).unwrap();
    let start = chunk.stripes().iter().find(|stripe| stripe.devid == 1).unwrap().physical.0;
    let failing = Arc::new(FaultDevice::new(memory.0[0].clone()));
    let data = start..start + chunk.bytes_per_stripe();
    failing.inject(Fault::fail(Operation::Read).within(data));
    let devices = || -> Vec<Arc<dyn Device>> { vec![failing.clone(), memory.0[1].clone()] };
    let read = |fs: &Filesystem| {
        let mut data = vec![0; LEN];
        fs.subvolume("/").unwrap().open_file("plain").unwrap().read_at(&mut data, 0)
    };
    let error = read(&open(devices(), false)).expect_err("it is the old content");
    assert!(error.to_string().contains("missed commits"), "{error}");
    let fs = open(devices(), true);
    assert!(is_stale(&fs));
    assert!(read(&fs).is_err());
    fs.subvolume("/").unwrap().remove_file("plain").unwrap();
    fs.sync().unwrap();
    drop(fs);
    assert!(!is_stale(&open(devices(), true)));
}

/// A device that opening left out of date gets what it missed while threads overwrite data in place,
/// write files, and delete some.
#[test]
fn a_device_is_brought_up_to_date_while_the_file_system_is_in_use() {
    let memory = returned(Profile::Raid1, Profile::Raid1, 2);
    let failing = Arc::new(FaultDevice::new(memory.0[0].clone()));
    let devices = || -> Vec<Arc<dyn Device>> { vec![failing.clone(), memory.0[1].clone()] };
    let volume = Volume::open(memory.devices(), &larder_volume::OpenOptions::default()).unwrap();
    let chunks = volume.chunks();
    let is_data = |chunk: &&Arc<Chunk>| chunk.flags().contains(BlockGroupFlags::DATA);
    let chunk = chunks.iter().find(is_data).unwrap();
    let start = chunk.stripes().iter().find(|stripe| stripe.devid == 1).unwrap().physical.0;
    failing.inject(Fault::fail(Operation::Read).within(start..start + chunk.bytes_per_stripe()));
    let fs = open(devices(), true);
    assert!(is_stale(&fs));
    assert!(!fs.bring_up_to_date(&|_| ()).unwrap(), "no other copy can be read");
    failing.heal();
    let top = fs.subvolume("/").unwrap();
    let plain = top.open_file("plain").unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _writer = scope.spawn(|| {
            for round in 0.. {
                let value = vec![round as u8; LEN / 4];
                plain.write_at(&value, round % 4 * (LEN as u64 / 4)).unwrap();
                let name = format!("in-between-{}", round % 3);
                drop(top.remove_file(&name));
                top.create(&name, 0o644).unwrap().write_at(&value, 0).unwrap();
                fs.sync().unwrap();
                if round > 20 && is_done.load(SeqCst) {
                    break;
                }
            }
        });
        let is_up_to_date = fs.bring_up_to_date(&|_| ()).unwrap();
        is_done.store(true, SeqCst);
        assert!(is_up_to_date);
    });
    assert!(!is_stale(&fs));
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((plain, top, fs));
    // The device that returned has all of it, alone.
    let alone = open(memory.devices().split_off(1), false);
    assert!(!is_stale(&alone));
    assert_same(&manifest, &support::manifest(&alone));
    assert_sound(memory.0.iter().map(|device| &**device), "brought up to date");
}

/// Devices of a file system, each used without the other, for so many commits.
fn used_separately(commits: [usize; 2]) -> Memory {
    let memory = made(Profile::Raid1, Profile::Raid1, 2);
    for (device, commits) in memory.devices().into_iter().zip(commits) {
        let fs = open(vec![device], true);
        for number in 0..commits {
            let top = fs.subvolume("/").unwrap();
            top.create_subvolume(format!("subvolume-{number}")).unwrap();
            fs.sync().unwrap();
        }
    }
    memory
}

#[test]
fn devices_that_were_used_separately_are_refused() {
    let memory = used_separately([1, 1]);
    let before = memory.copy();
    for devices in [memory.devices(), memory.devices().into_iter().rev().collect()] {
        let error = options().write(true).open_devices(devices).expect_err("they differ");
        let error = error.to_string();
        assert!(error.contains("were used separately"), "{error}");
        for device in &memory.0 {
            assert!(error.contains(device.name()), "{error}");
        }
    }
    for (device, before) in memory.0.iter().zip(&before.0) {
        device.each_difference(before, |at, _| panic!("written at {at}"));
    }
}

/// After more commits on one of them, nothing may tell it from a device that only missed commits.
/// Then the newer device is the truth, as a whole.
#[test]
fn devices_that_were_used_separately_are_never_mixed() {
    for commits in [3, 6] {
        let memory = used_separately([commits, 1]);
        match options().write(true).open_devices(memory.devices()) {
            Err(error) => assert!(error.to_string().contains("were used separately"), "{error}"),
            Ok(fs) => {
                for number in 0..commits {
                    fs.subvolume(format!("/subvolume-{number}")).unwrap();
                }
                drop(fs);
                assert_sound(memory.0.iter().map(|device| &**device), "the newer one");
            }
        }
    }
}

/// Data that the kernel wrote without a device is read and healed as well, with parity too.
#[test]
fn the_kernel_wrote_without_a_device() {
    use larder_testkit::Profile::{Raid1, Raid1c3, Raid5, Raid6, Raid10};
    for (profile, count, is_writable) in [
        (Raid1, 2, true),
        (Raid1c3, 3, true),
        (Raid10, 4, true),
        (Raid5, 3, false),
        (Raid6, 4, false),
    ] {
        println!("{}", profile.name());
        let spec =
            ImageSpec::new("returned").devices(&vec![256 << 20; count]).profiles(profile, profile);
        let image = KernelImage::build(&spec, &Content::new(3).all_checksummed());
        let write = |files, options: &str, value| {
            let mount = KernelMount::open(files, options);
            let file = mount.path().join("plain");
            let file = std::fs::File::options().create(true).truncate(false).write(true).open(file);
            std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &vec![value; LEN], 0).unwrap();
        };
        write(image.devices(), "noatime,nodatacow", 1);
        write(&image.devices()[..count - 1], "noatime,nodatacow,degraded", 2);
        let memory = Memory(image.devices().iter().map(|file| Arc::new(load(file))).collect());
        let plain_has = |devices, write, value: u8| {
            let fs = open(devices, write);
            let file = fs.subvolume("/").unwrap().open_file("plain").unwrap();
            let mut data = vec![0; LEN];
            assert_eq!(file.read_at(&mut data, 0).unwrap(), LEN);
            assert_eq!(data.iter().position(|byte| *byte != value), None);
        };
        plain_has(memory.devices(), false, 2);
        if is_writable {
            plain_has(memory.devices(), true, 2);
            plain_has(memory.devices().split_off(1), false, 2);
        }
    }
}
