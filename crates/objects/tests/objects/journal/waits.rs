//! Which calls wait for the journal, and which for the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use larder_device::{Device, MemoryDevice, Operation};
use larder_objects::{JournaledDevice, ObjectDevice, Store};
use larder_test_devices::{Fault, FaultDevice};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Away, BLOCK_BYTES, BLOCKS, forever, options, put, read};
use crate::support::effort;

#[test]
fn a_flush_waits_for_the_journal_and_not_for_the_store() {
    let store = Away::new();
    let disk = MemoryDevice::new("disk", 1 << 20);
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), Arc::new(disk))
            .unwrap();
    store.go(true);
    for number in 1..=20 {
        put(&device, number % BLOCKS, number);
        device.flush().unwrap();
    }
    assert_eq!(read(&device).unwrap()[20], 20);
    assert_eq!(device.trouble(), None, "nobody waits");
    store.go(false);
    device.wait_for_store().unwrap();
    let reader = ObjectDevice::open_read_only(Arc::clone(&store) as _, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[20], 20);
    drop(device);
}

/// More than the journal takes waits for the store, and loses nothing.
#[test]
fn a_full_journal_waits_for_the_store() {
    let store = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 40 << 10));
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), disk).unwrap();
    store.go(true);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=200 {
                put(&device, number % BLOCKS, number);
                device.flush().unwrap();
                done.store(number, Ordering::SeqCst);
            }
        });
        while device.trouble().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!((10..199).contains(&done.load(Ordering::SeqCst)));
        store.go(false);
    });
    assert_eq!(read(&device).unwrap()[8], 200);
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[8], 200);
}

/// Threads write while the store gets what others have flushed. Each finds what it wrote last.
#[test]
fn threads_find_what_they_wrote() {
    const THREADS: u64 = 3;
    let store: Arc<dyn Store> = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 60 << 10));
    let device = JournaledDevice::open_elsewhere(Arc::clone(&store), &forever(), disk).unwrap();
    let write = |thread: u64| {
        let mut mine = vec![0; (BLOCKS / THREADS) as usize];
        let mut rng = StdRng::seed_from_u64(thread);
        for number in 1..4000 * u64::from(effort()) {
            let (one, other) = (rng.random_range(0..mine.len()), rng.random_range(0..mine.len()));
            put(&device, thread + one as u64 * THREADS, number);
            mine[one] = number;
            if rng.random_bool(0.3) {
                device.flush().unwrap();
            }
            let mut found = [0; 8];
            device.read_at(&mut found, (thread + other as u64 * THREADS) * BLOCK_BYTES).unwrap();
            assert_eq!(u64::from_le_bytes(found), mine[other], "block {other} of {thread}");
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || write(thread));
        }
    });
    let last = read(&device).unwrap();
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap(), last);
}

/// What one flush makes durable may be more than the journal takes.
#[test]
fn more_than_the_journal_takes_goes_through() {
    let store = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 20 << 10));
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), disk).unwrap();
    for round in 0..3 {
        for number in 1..=100 {
            put(&device, number % BLOCKS, round * 1000 + number);
        }
        let before = read(&device).unwrap();
        device.flush().unwrap();
        assert_eq!(read(&device).unwrap(), before);
        // It takes the journal again.
        store.go(true);
        put(&device, 0, round);
        device.flush().unwrap();
        store.go(false);
    }
    let last = read(&device).unwrap();
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap(), last);
}

/// A disk that fails loses nothing that it can still read: flushes wait for the store then, and
/// nothing of the journal is used later.
#[test]
fn a_broken_disk_makes_flushes_wait_for_the_store() {
    for operation in [Operation::Write, Operation::Flush] {
        for after in 0..30 {
            let store = Away::new();
            let memory = Arc::new(MemoryDevice::new("disk", 40 << 10));
            let disk = Arc::new(FaultDevice::new(Arc::clone(&memory) as _));
            let open = JournaledDevice::open_elsewhere;
            let device = open(Arc::clone(&store) as _, &forever(), Arc::clone(&disk) as _).unwrap();
            disk.inject(Fault::fail(operation).after(after).times(u64::MAX));
            for number in 1..=40 {
                put(&device, number % BLOCKS, number);
                device.flush().unwrap();
            }
            let reader =
                ObjectDevice::open_read_only(Arc::clone(&store) as _, None, &options()).unwrap();
            let last = read(&device).unwrap();
            assert_eq!(read(&reader).unwrap(), last, "{operation} {after}");
            drop((reader, device));
            disk.heal();
            let device = open(store, &forever(), disk).unwrap();
            assert_eq!(read(&device).unwrap(), last, "{operation} {after}");
        }
    }
}
