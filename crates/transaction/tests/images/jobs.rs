//! Balances and work on devices that power cuts, failing calls of devices and lost devices
//! interrupt: the file system is sound, has its files, and the work can be done then.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice, Operation};
use larder_format::Uuid;
use larder_format::item::{BalanceItem, balance_flags};
use larder_power_cuts::{assert_sound, load};
use larder_test_devices::{CountingDevice, Fault, FaultDevice, Recording};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile};
use larder_transaction::{DeviceProgress, Error, Replacement, Result, TransactionManager};
use larder_volume::{OpenOptions, Volume};

use crate::cuts::after_power_cuts;
use crate::support::{Files, Random, names, open_devices, open_volume};

const MIB: u64 = 1 << 20;

fn go_on(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn everything() -> BalanceItem {
    let mut item = BalanceItem::nothing();
    item.flags = (balance_flags::DATA | balance_flags::METADATA | balance_flags::SYSTEM).into();
    item
}

/// Begins a balance of everything, or goes on with one, and ends it; after so many looks at its
/// progress it is interrupted.
fn balance(manager: &TransactionManager, looks: u64) -> Result<()> {
    let item = manager.balance_item()?.unwrap_or_else(everything);
    manager.set_balance_item(Some(&item))?;
    let left = Cell::new(looks);
    let tell = |_: &_| {
        left.set(left.get().saturating_sub(1));
        if left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    manager.balance(&item, &tell)?;
    manager.set_balance_item(None)
}

/// Two devices that the kernel filled, each with everything, and an empty one.
fn devices(seed: u64) -> Vec<MemoryDevice> {
    let spec = ImageSpec::new("two-devices").devices(&[300 * MIB, 300 * MIB]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(seed));
    let mut devices: Vec<_> = image.devices().iter().map(|file| load(file)).collect();
    devices.push(MemoryDevice::new("third", 320 * MIB));
    devices
}

#[test]
fn power_cuts_in_a_balance() {
    let seed = larder_testkit::seed(3);
    let base = devices(seed);
    let recording = Recording::new();
    let attach = |device: &MemoryDevice| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let manager = open_devices(base[..2].iter().map(attach).collect()).unwrap();
    let mut files = Files::new("larder", seed);
    let mut states = vec![(0, files.sorted())];
    let mut parts = Vec::new();
    for (name, looks) in [("balance", u64::MAX), ("interrupted", 3), ("resume", u64::MAX)] {
        files.churn(&manager, 30).unwrap();
        manager.commit().unwrap();
        let begun = recording.position();
        states.push((begun, files.sorted()));
        let ended = balance(&manager, looks);
        assert_eq!(ended.is_ok(), looks == u64::MAX, "{ended:?}");
        parts.push((name, begun + 1..recording.position() + 1));
    }
    assert!(manager.balance_item().unwrap().is_none());
    drop(manager);
    let resumed = Cell::new(0);
    for (name, part) in parts {
        after_power_cuts(name, &recording, &states, part, (seed, 24), |manager| {
            if manager.balance_item().unwrap().is_some() {
                balance(manager, u64::MAX).unwrap();
                resumed.set(resumed.get() + 1);
            }
            assert!(manager.balance_item().unwrap().is_none());
        });
    }
    assert!(resumed.get() > 20, "{resumed:?}");
}

/// Work on two devices, and a third one.
type Job = fn(&TransactionManager, &Arc<dyn Device>) -> Result<()>;

const JOBS: [(&str, Job); 5] = [
    ("balance", |manager, _| balance(manager, u64::MAX)),
    ("remove", |manager, third| {
        manager.add_device(third.clone(), Uuid::from_u128(3))?;
        manager.remove_device(1, &go_on).map(drop)
    }),
    ("resize", |manager, _| manager.resize_device(1, 270 * MIB, &go_on).map(drop)),
    ("shrink", |manager, _| manager.minimize_device(1, &go_on).map(drop)),
    ("replace", |manager, third| {
        let wanted = Replacement { devid: 1, target: third.clone(), avoid_source: false };
        manager.replace_device(&wanted, &go_on).map(drop)
    }),
];

/// What a job leaves.
struct Left {
    memory: Vec<Arc<MemoryDevice>>,
    ended: Result<()>,
    strikes: u64,
}

/// Does a job on copies of devices, of which one has a fault.
fn with_fault(base: &[MemoryDevice], job: Job, number: usize, fault: Fault) -> Left {
    let memory: Vec<_> = base.iter().map(|device| Arc::new(device.snapshot())).collect();
    let faulty: Vec<_> =
        memory.iter().map(|device| Arc::new(FaultDevice::new(device.clone()))).collect();
    let members = faulty[..2].iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let manager = open_devices(members).unwrap();
    faulty[number].inject(fault);
    let ended = job(&manager, &(faulty[2].clone() as Arc<dyn Device>));
    drop(manager);
    Left { memory, ended, strikes: faulty[number].strikes() }
}

/// How many calls of a device a job makes.
fn calls(base: &[MemoryDevice], job: Job, number: usize, operation: Operation) -> u64 {
    let counting: Vec<_> = base
        .iter()
        .map(|device| Arc::new(CountingDevice::new(Arc::new(device.snapshot()))))
        .collect();
    let members = counting[..2].iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let manager = open_devices(members).unwrap();
    let before = counting[number].counts();
    job(&manager, &(counting[2].clone() as Arc<dyn Device>)).unwrap();
    let after = counting[number].counts();
    match operation {
        Operation::Read => after.reads - before.reads,
        Operation::Write => after.writes - before.writes,
        _ => after.flushes - before.flushes,
    }
}

/// The devices with a superblock of the file system.
fn members(memory: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    let found = |device: &Arc<MemoryDevice>| larder_volume::scan(&**device).ok();
    let is_one = |device: &&Arc<MemoryDevice>| found(device).is_some();
    memory.iter().filter(is_one).cloned().collect()
}

/// Makes the files that are there before the work.
fn with_files(base: &[MemoryDevice], seed: u64) -> (Vec<MemoryDevice>, Files) {
    let memory: Vec<_> = base.iter().map(|device| Arc::new(device.snapshot())).collect();
    let members = memory[..2].iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let manager = open_devices(members).unwrap();
    let mut files = Files::new("larder", seed);
    files.churn(&manager, 60).unwrap();
    manager.commit().unwrap();
    drop(manager);
    (memory.iter().map(|device| device.snapshot()).collect(), files)
}

/// After any call that fails, the file system is sound and has its files; and the work that failed
/// can be done.
#[test]
fn each_call_of_a_device_fails_once() {
    let seed = larder_testkit::seed(5);
    let (base, files) = with_files(&devices(seed), seed);
    let mut random = Random(seed);
    let (mut runs, mut struck) = (0, 0);
    for (name, job) in JOBS {
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            let number = random.below(2) as usize;
            let all = calls(&base, job, number, operation);
            for _ in 0..if all > 0 { larder_testkit::effort() } else { 0 } {
                let at = random.below(all);
                let what = format!("{name}: {operation:?} {at} of {all} of device {number}");
                let fault = Fault::fail(operation).after(at).times(1);
                let left = with_fault(&base, job, number, fault);
                runs += 1;
                struck += u64::from(left.strikes > 0);
                let again = members(&left.memory);
                let again = again.into_iter().map(|device| device as Arc<dyn Device>);
                let manager = open_devices(again.collect()).unwrap();
                assert_eq!(names(&manager, "larder").unwrap(), files.sorted(), "{what}");
                if manager.replace_item().unwrap().is_some_and(|item| item.is_unfinished()) {
                    manager.cancel_replace().unwrap();
                }
                if manager.balance_item().unwrap().is_some() {
                    balance(&manager, u64::MAX).unwrap();
                }
                let moved = manager.minimize_device(2, &go_on);
                moved.unwrap_or_else(|error| panic!("{what}: {error}"));
                let belongs = |device: &&Arc<MemoryDevice>| {
                    let devices = manager.volume().devices();
                    let found = larder_volume::scan(&***device).ok();
                    found.is_some_and(|found| {
                        let uuid = found.superblock.dev_item.uuid();
                        let generation = found.superblock.generation.get();
                        devices.iter().any(|member| member.uuid() == uuid)
                            && generation == manager.superblock().generation.get()
                    })
                };
                let sound: Vec<_> = left.memory.iter().filter(belongs).collect();
                assert_sound(sound.iter().map(|device| &***device), &what);
            }
        }
    }
    println!("{runs} runs, {struck} with a call that failed");
    assert!(struck > 0, "no call failed in {runs} runs");
}

/// With two copies of everything, one device is enough whenever the other one goes.
#[test]
fn a_device_is_lost_in_the_middle_of_work() {
    let seed = larder_testkit::seed(9);
    let (base, files) = with_files(&devices(seed), seed);
    let mut random = Random(seed);
    for (name, job) in JOBS {
        let all = calls(&base, job, 1, Operation::Write);
        for _ in 0..2 * larder_testkit::effort() {
            let at = random.below(all);
            let what = format!("{name}: lost before write {at} of {all}");
            let left = with_fault(&base, job, 1, Fault::fail(Operation::Write).after(at));
            assert!(left.strikes > 0 || left.ended.is_ok(), "{what}");
            let lost = larder_volume::scan(&*left.memory[1]).unwrap().superblock.dev_item.uuid();
            let there = members(&left.memory).into_iter().filter(|device| {
                larder_volume::scan(&**device).unwrap().superblock.dev_item.uuid() != lost
            });
            let there = there.map(|device| device as Arc<dyn Device>).collect();
            let options = OpenOptions { write: true, degraded: true, ..Default::default() };
            let volume = Arc::new(Volume::open(there, &options).unwrap());
            let manager = open_volume(volume).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(names(&manager, "larder").unwrap(), files.sorted(), "{what}");
            // What became small has no room.
            for device in manager.volume().devices().iter() {
                let len_bytes = device.device().map(|device| device.len_bytes());
                if let Some(len_bytes) = len_bytes {
                    manager.resize_device(device.devid(), len_bytes, &go_on).unwrap();
                }
            }
            let mut more = Files::new("more", seed);
            more.churn(&manager, 10).unwrap_or_else(|error: Error| panic!("{what}: {error}"));
            manager.commit().unwrap();
            assert_eq!(names(&manager, "more").unwrap(), more.sorted(), "{what}");
        }
    }
}
