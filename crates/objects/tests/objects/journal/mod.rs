//! A journal on a local disk.

mod files;
mod histories;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_device::{Device, DeviceError};
use larder_objects::{Layer, ObjectDevice, Options, Policy, Problem, Store, StoreError};

use crate::support::{MemoryStore, error};

const BLOCK_BYTES: u64 = 512;
const BLOCKS: u64 = 24;

type Image = Vec<u64>;

fn read(device: &dyn Device) -> Result<Image, DeviceError> {
    let block = |block| {
        let mut bytes = [0; BLOCK_BYTES as usize];
        device.read_at(&mut bytes, block * BLOCK_BYTES)?;
        Ok(u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    };
    (0..BLOCKS).map(block).collect()
}

fn put(device: &dyn Device, block: u64, number: u64) {
    device.write_at(&number.to_le_bytes().repeat(64), block * BLOCK_BYTES).unwrap();
}

fn create(store: &dyn Store) {
    ObjectDevice::create(store, BLOCKS * BLOCK_BYTES, Policy::default(), 0).unwrap();
}

fn options() -> Options {
    Options { patience: Some(Duration::ZERO), ..Options::default() }
}

/// A store that somebody can take away.
#[derive(Debug)]
struct Away {
    store: MemoryStore,
    is_away: AtomicBool,
}

impl Away {
    fn new() -> Arc<Self> {
        let store = MemoryStore::default();
        create(&store);
        Arc::new(Self { store, is_away: AtomicBool::new(false) })
    }

    fn go(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }
}

impl Layer for Away {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.store
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(error(Problem::Temporary, name));
        }
        call(&self.store)
    }
}

fn forever() -> Options {
    Options { patience: None, ..Options::default() }
}
