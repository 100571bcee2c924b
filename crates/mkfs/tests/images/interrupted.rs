//! The state that an interrupted mkfs leaves.

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_device::{Device, MemoryDevice, Operation};
use larder_format::superblock::{MAGIC, OFFSETS};
use larder_mkfs::{MkfsError, MkfsOptions, Progress, mkfs, mkfs_on};
use larder_test_devices::{CountingDevice, Event, Fault, FaultDevice, Recording};
use larder_testkit::Scratch;

use crate::common::{MIB, Source, options};

/// Whether there is a superblock at any of its places.
fn has_superblock(device: &dyn Device) -> bool {
    OFFSETS.iter().any(|offset| {
        let mut magic = [0; 8];
        let fits = offset.0 + 4096 <= device.len_bytes();
        fits && device.read_at(&mut magic, offset.0 + 64).is_ok()
            && u64::from_le_bytes(magic) == MAGIC
    })
}

/// A device with old content.
fn old_device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new("memory", 300 * MIB);
    for offset in &OFFSETS[..2] {
        device.write_at(&MAGIC.to_le_bytes(), offset.0 + 64).unwrap();
    }
    Arc::new(device)
}

#[test]
fn an_error_at_any_write_leaves_no_file_system() {
    let source = Source::new();
    let options = MkfsOptions { force: true, discard: false, ..options(source.path()) };
    let counting = Arc::new(CountingDevice::new(old_device()));
    mkfs_on(&[Arc::clone(&counting) as Arc<dyn Device>], &options).unwrap();
    let writes = counting.counts().writes;
    assert!(writes > 10, "{writes}");
    let superblocks = 2;
    for good_writes in 0..writes {
        let device = Arc::new(FaultDevice::new(old_device()));
        device.inject(Fault::fail(Operation::Write).after(good_writes));
        let error = mkfs_on(&[Arc::clone(&device) as Arc<dyn Device>], &options).unwrap_err();
        assert!(error.to_string().starts_with("memory: write of"), "{error}");
        // The first writes remove the old superblocks, and the last ones write the new ones.
        if (superblocks..=writes - superblocks).contains(&good_writes) {
            assert!(!has_superblock(device.as_ref()), "after {good_writes} writes of {writes}");
        }
    }
}

#[test]
fn a_failed_flush_is_an_error() {
    let source = Source::new();
    let options = MkfsOptions { force: true, ..options(source.path()) };
    for good_flushes in 0..4 {
        let device = Arc::new(FaultDevice::new(old_device()));
        device.inject(Fault::fail(Operation::Flush).after(good_flushes));
        let error = mkfs_on(&[Arc::clone(&device) as Arc<dyn Device>], &options).unwrap_err();
        assert!(error.to_string().starts_with("memory: flush"), "{error}");
        // The last flushes come after the first superblock and after its copies.
        assert_eq!(has_superblock(device.as_ref()), good_flushes >= 2);
    }
}

#[test]
fn superblocks_come_last_and_after_a_flush() {
    let source = Source::new();
    let recording = Recording::new();
    let device: Arc<dyn Device> =
        Arc::new(recording.attach(&MemoryDevice::new("memory", 300 * MIB)));
    mkfs_on(&[device], &options(source.path())).unwrap();
    let mut events = Vec::new();
    let mut replay = recording.replay();
    while let Some(entry) = replay.step() {
        events.push(entry.event);
    }
    let is_superblock = |event: &Event| match event {
        Event::Write { offset, .. } => OFFSETS.iter().any(|place| place.0 == *offset),
        _ => false,
    };
    let [.., before, first, between, second, last] = &events[..] else {
        panic!("{} events", events.len())
    };
    assert!([before, between, last].iter().all(|event| matches!(event, Event::Flush)));
    assert!(is_superblock(first) && is_superblock(second));
    assert_eq!(events.iter().filter(|event| is_superblock(event)).count(), 2);
    assert!(events.len() > 10);
}

#[test]
fn a_caller_who_stops_it_finds_the_files_as_they_were() {
    let (source, scratch) = (Source::new(), Scratch::new());
    let (new, old) = (scratch.path().join("new.img"), scratch.path().join("old.img"));
    fs::write(&old, "").unwrap();
    let targets = [new.clone(), old.clone()];
    // Makes a file system, and stops it when it has told `good` times how far it is.
    let told_until = |good: usize| {
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let progress = Progress::new(move |_| match count.fetch_add(1, Ordering::Relaxed) {
            number if number < good => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        let options = MkfsOptions {
            byte_count: Some(300 * MIB),
            progress: Some(progress),
            ..options(source.path())
        };
        (mkfs(&targets, &options), told.load(Ordering::Relaxed))
    };
    let (made, all) = told_until(usize::MAX);
    made.unwrap();
    assert!(all > 10, "{all}");
    fs::remove_file(&new).unwrap();
    for good in 0..all {
        fs::write(&old, "").unwrap();
        let (stopped, told) = told_until(good);
        assert!(matches!(stopped, Err(MkfsError::Interrupted)), "after {good} of {all}");
        assert_eq!(told, good + 1, "it went on");
        assert!(!new.exists() && old.metadata().unwrap().len() == 0, "after {good} of {all}");
    }
}
