//! A device that is open for writing, while no program writes.

use std::sync::{Arc, OnceLock, Weak};

use larder_device::Device;
use larder_objects::{
    ObjectDevice, ObjectsError, Options, Policy, Problem, Store, StoreError, info, pass_on,
};

use crate::support::{Asking, MemoryStore, assert_sound, error};

const MIB: usize = 1 << 20;

const NOTHING: Policy = Policy { all: 0, hourly: 0, daily: 0 };

fn made(policy: Policy) -> (Arc<MemoryStore>, Arc<dyn Store>) {
    let memory = Arc::new(MemoryStore::default());
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    ObjectDevice::create(&*store, 64 << 20, policy, 0).unwrap();
    (memory, store)
}

fn segments(memory: &MemoryStore) -> usize {
    memory.names().iter().filter(|name| name.starts_with("segments/")).count()
}

#[test]
fn what_no_state_needs_goes_while_nobody_writes() {
    let (memory, store) = made(NOTHING);
    let options = Options { segment_bytes: MIB, ..Options::default() };
    let device = ObjectDevice::open(Arc::clone(&store), &options).unwrap();
    for at in 0..20 {
        device.write_at(&vec![at as u8; MIB], (at * MIB) as u64).unwrap();
    }
    device.flush().unwrap();
    // No flush follows what a file system frees after a commit.
    device.discard(0, 20 * MIB as u64).unwrap();
    assert!(segments(&memory) >= 20);
    device.tend().unwrap();
    device.tend().unwrap();
    assert!(segments(&memory) <= 2, "{:?}", memory.names());
    // Then there is nothing to do.
    let before = device.requests();
    device.tend().unwrap();
    assert_eq!(device.requests(), before);
    assert_sound(&store);
}

#[test]
fn what_a_kept_state_needs_stays() {
    let (memory, store) = made(Policy::default());
    let options = Options { segment_bytes: MIB, ..Options::default() };
    let device = ObjectDevice::open(Arc::clone(&store), &options).unwrap();
    device.write_at(&vec![7; 4 * MIB], 0).unwrap();
    device.flush().unwrap();
    device.discard(0, 4 * MIB as u64).unwrap();
    device.flush().unwrap();
    for _ in 0..3 {
        device.tend().unwrap();
    }
    assert!(segments(&memory) >= 4);
    assert_sound(&store);
}

#[test]
fn maintenance_ends_no_writer() {
    let (_, store) = made(NOTHING);
    let options = Options::default();
    let open_closed = || ObjectDevice::open_closed(Arc::clone(&store), &options);
    let writer = ObjectDevice::open_elsewhere(Arc::clone(&store), &options).unwrap();
    assert!(matches!(open_closed(), Err(ObjectsError::NotClosed { .. })));
    writer.write_at(&[7; 512], 0).unwrap();
    writer.flush().unwrap();
    drop(writer);
    drop(open_closed().unwrap());
}

/// Keys that may not delete.
#[derive(Debug)]
struct KeepsAll(MemoryStore);

impl Store for KeepsAll {
    pass_on!(0: name, get, get_versioned, try_create, try_replace, list);

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        Err(error(Problem::Denied, name))
    }
}

#[test]
fn keys_that_may_not_delete_can_write() {
    let store: Arc<dyn Store> = Arc::new(KeepsAll(MemoryStore::default()));
    ObjectDevice::create(&*store, 1 << 20, NOTHING, 0).unwrap();
    let device = ObjectDevice::open(Arc::clone(&store), &Options::default()).unwrap();
    device.write_at(&[7; 512], 0).unwrap();
    device.flush().unwrap();
    drop(device);
    assert_sound(&store);
}

/// Checkpoints that come between two groups of light objects stop nobody who rewrites all of them.
#[test]
fn all_light_objects_are_rewritten_also_while_checkpoints_come() {
    const FLUSHES: u64 = 100;
    let store = Arc::new(MemoryStore::default());
    ObjectDevice::create(&*store, 1 << 20, "".parse().unwrap(), 0).unwrap();
    let other = Arc::new(OnceLock::<Weak<ObjectDevice>>::new());
    let seen = Arc::clone(&other);
    let may_pass = move |name: &str| {
        let other = seen.get().and_then(Weak::upgrade);
        if let Some(other) = other.filter(|_| name.starts_with("segments/")) {
            other.tend().unwrap();
        }
        Ok(())
    };
    let asking = Arc::new(Asking { store: Arc::clone(&store), may_pass });
    let options = Options { segment_bytes: 4096, most_flushes: 1000, ..Options::default() };
    let device = Arc::new(ObjectDevice::open_elsewhere(asking, &options).unwrap());
    for block in 0..FLUSHES {
        device.write_at(&block.to_le_bytes().repeat(64), block * 512).unwrap();
        device.flush().unwrap();
    }
    assert!(info(&*store).unwrap().segments.0 >= FLUSHES);
    other.set(Arc::downgrade(&device)).unwrap();
    device.collect_garbage(|_, _| ()).unwrap();
    let left = info(&*store).unwrap().segments.0;
    assert!(left <= FLUSHES * 512 / 4096 + 1, "{left} objects have content");
}
