//! A device that is open for writing, while no program writes.

use std::sync::Arc;

use larder_device::Device;
use larder_objects::{ObjectDevice, ObjectsError, Options, Policy, Problem, Store, StoreError};

use crate::support::{MemoryStore, assert_sound, error};

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
    fn name(&self) -> &'static str {
        "keeps all"
    }
    fn get(&self, name: &str, range: std::ops::Range<u64>) -> Result<bytes::Bytes, StoreError> {
        self.0.get(name, range)
    }
    fn get_versioned(&self, name: &str) -> Result<larder_objects::Versioned, StoreError> {
        self.0.get_versioned(name)
    }
    fn try_create(&self, name: &str, content: bytes::Bytes) -> Result<(), StoreError> {
        self.0.try_create(name, content)
    }
    fn try_replace(
        &self,
        name: &str,
        content: bytes::Bytes,
        version: &larder_objects::Version,
    ) -> Result<larder_objects::Version, StoreError> {
        self.0.try_replace(name, content, version)
    }
    fn delete(&self, name: &str) -> Result<(), StoreError> {
        Err(error(Problem::Denied, name))
    }
    fn list(&self, prefix: &str) -> Result<Vec<larder_objects::Listed>, StoreError> {
        self.0.list(prefix)
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
