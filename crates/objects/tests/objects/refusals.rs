//! Every refusal at every request of a writer: it loses nothing, and goes on.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use larder_device::Device;
use larder_objects::{
    DataKey, Listed, ObjectDevice, Options, Policy, Problem, Store, StoreError, Version, Versioned,
    info, pass_on,
};

use crate::support::{Lie, MemoryStore, REFUSALS, Told, assert_sound, error, keys, opened, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A store that refuses one request, or so many from one on.
#[derive(Debug)]
struct Refusing {
    store: MemoryStore,
    problem: Problem,
    /// It does what it says it refuses.
    does_it: bool,
    first: u64,
    count: u64,
    requests: AtomicU64,
}

impl Refusing {
    fn pass<T>(
        &self,
        name: &str,
        problem: Problem,
        request: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if number < self.first || number - self.first >= self.count {
            return request();
        }
        if self.does_it {
            let _ = request();
        }
        Err(error(problem, name))
    }

    /// Only writes have conditions.
    fn ask<T>(
        &self,
        name: &str,
        request: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let is_condition = self.problem == Problem::Condition;
        self.pass(name, if is_condition { Problem::Temporary } else { self.problem }, request)
    }
}

impl Store for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.ask(name, || self.store.get(name, range))
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.ask(name, || self.store.get_versioned(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.pass(name, self.problem, || self.store.try_create(name, content))
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.pass(name, self.problem, || self.store.try_replace(name, content, version))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.ask(name, || self.store.delete(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.ask(prefix, || self.store.list(prefix))
    }
}

const BLOCK: usize = 512;

fn assert_content(device: &ObjectDevice, rounds: u8) {
    for round in 0..rounds {
        let mut found = [0; BLOCK];
        device.read_at(&mut found, u64::from(round) * BLOCK as u64).unwrap();
        assert_eq!(found, [round + 1; BLOCK]);
    }
}

/// Returns whether there was a request to refuse.
fn try_one(key: Option<&DataKey>, problem: Problem, does_it: bool, first: u64, count: u64) -> bool {
    const ROUNDS: u8 = 3;
    let store = Arc::new(MemoryStore::default());
    let policy = Policy { all: 0, hourly: 0, daily: 0 };
    ObjectDevice::create(&*opened(Arc::clone(&store), key), 1 << 20, policy, 0).unwrap();
    let store = Arc::into_inner(store).unwrap();
    let requests = AtomicU64::new(0);
    let store = Arc::new(Refusing { store, problem, does_it, first: u64::MAX, count, requests });
    let options = Options { cache_bytes: 0, segment_bytes: 1024, ..Options::default() };
    let device = ObjectDevice::open_elsewhere(opened(Arc::clone(&store), key), &options).unwrap();
    drop(device);
    let store = Arc::into_inner(store).unwrap();
    let opening = store.requests.load(Ordering::Relaxed);
    let requests = AtomicU64::new(0);
    // The opening itself may be refused.
    let store = Arc::new(Refusing { first: opening - 1 + first, requests, ..store });
    let device = ObjectDevice::open_elsewhere(opened(Arc::clone(&store), key), &options).unwrap();
    for round in 0..ROUNDS {
        device.write_at(&[round + 1; BLOCK], u64::from(round) * BLOCK as u64).unwrap();
        device.flush().unwrap();
        // What only cleans up may fail.
        let _ = device.collect_garbage(|_, _| ());
        assert_content(&device, round + 1);
    }
    drop(device);
    let was_refused = store.requests.load(Ordering::Relaxed) > store.first;
    let store = opened(Arc::into_inner(store).unwrap().store, key);
    assert!(info(&*store).unwrap().is_closed || count > 1);
    assert_sound(&store);
    assert_content(&ObjectDevice::open_read_only(store, None, &options).unwrap(), ROUNDS);
    was_refused
}

#[test]
fn no_refusal_costs_a_writer_what_it_has_written() {
    thread::scope(|scope| {
        for key in keys() {
            for problem in REFUSALS {
                for does_it in [false, true] {
                    let key = key.clone();
                    let try_one =
                        move |first, count| try_one(key.as_ref(), problem, does_it, first, count);
                    scope.spawn(move || {
                        let number = (0..1000).find(|first| !try_one(*first, 1)).unwrap();
                        assert!(number > 10, "{number} requests");
                        for first in [0, 1, 2, 3, 5] {
                            try_one(first, 4);
                        }
                    });
                }
            }
        }
    });
}

/// A store whose replies tell versions that are none.
#[derive(Debug)]
struct Forgetful(MemoryStore, AtomicU64);

impl Forgetful {
    fn is_wrong(&self) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
    }
}

impl Store for Forgetful {
    pass_on!(0: name, get, try_create, delete, list);

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let found = self.0.get_versioned(name)?;
        let version = if self.is_wrong() { Version("none".to_owned()) } else { found.version };
        Ok(Versioned { version, ..found })
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        let version = self.0.try_replace(name, content, version)?;
        Ok(if self.is_wrong() { Version("none".to_owned()) } else { version })
    }
}

#[test]
fn a_wrong_version_in_a_reply_ends_no_writer() {
    for first in 0..3 {
        let store = MemoryStore::default();
        ObjectDevice::create(&store, 1 << 20, Policy::default(), 0).unwrap();
        let store: Arc<dyn Store> = Arc::new(Forgetful(store, AtomicU64::new(first)));
        // The opening asks whether the store keeps its word.
        let opened = (0..20).find_map(|_| {
            ObjectDevice::open_elsewhere(Arc::clone(&store), &Options::default()).ok()
        });
        let device = opened.unwrap();
        for round in 0..20 {
            device.write_at(&[round + 1; BLOCK], u64::from(round) * BLOCK as u64).unwrap();
            device.flush().unwrap();
        }
        assert_content(&device, 20);
    }
}

/// A store that does what it is asked for and says that it has not, whose replies to those who look
/// then may be wrong.
#[derive(Debug)]
struct Lying(MemoryStore, Mutex<(StdRng, Vec<Told>)>);

impl Lying {
    fn change<T>(&self, name: &str, done: Result<T, StoreError>) -> Result<T, StoreError> {
        let done = done?;
        let is_denied = self.1.lock().unwrap().0.random_bool(0.3);
        if is_denied { Err(error(Problem::Condition, name)) } else { Ok(done) }
    }
}

impl Store for Lying {
    pass_on!(0: name, get, delete, list);

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let found = self.0.get_versioned(name)?;
        let (rng, past) = &mut *self.1.lock().unwrap();
        past.push((name.to_owned(), found.clone()));
        if rng.random_bool(0.5) {
            return Ok(found);
        }
        Lie::ALL[rng.random_range(0..Lie::ALL.len())].told(name, found, past, rng)
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.change(name, self.0.try_create(name, content))
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.change(name, self.0.try_replace(name, content, version))
    }
}

#[test]
fn wrong_replies_to_a_writer_that_looks_do_not_end_it() {
    thread::scope(|scope| {
        for seed in seed()..seed() + 8 {
            scope.spawn(move || {
                let store = MemoryStore::default();
                ObjectDevice::create(&store, 1 << 20, Policy::default(), 0).unwrap();
                let rng = StdRng::seed_from_u64(seed);
                let lying = Arc::new(Lying(store, Mutex::new((rng, Vec::new()))));
                let store: Arc<dyn Store> = Arc::clone(&lying) as _;
                let options =
                    Options { segment_bytes: 1024, most_flushes: 3, ..Options::default() };
                // Whoever opens it is told what went wrong.
                let opened = (0..1000)
                    .find_map(|_| ObjectDevice::open_elsewhere(Arc::clone(&store), &options).ok());
                let device = opened.unwrap();
                drop(store);
                for round in 0..30 {
                    device.write_at(&[round + 1; BLOCK], u64::from(round) * BLOCK as u64).unwrap();
                    device.flush().unwrap();
                }
                drop(device);
                let store: Arc<dyn Store> = Arc::new(Arc::into_inner(lying).unwrap().0);
                assert_sound(&store);
                let device = ObjectDevice::open_read_only(store, None, &options).unwrap();
                assert_content(&device, 30);
            });
        }
    });
}

/// A manifest from before the last one, which stays, is no wrong reply.
#[test]
fn a_store_that_was_set_back_ends_a_writer() {
    let store = Arc::new(MemoryStore::default());
    ObjectDevice::create(&*store, 1 << 20, Policy::default(), 0).unwrap();
    let past = store.get_versioned("manifest").unwrap();
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let device = ObjectDevice::open_elsewhere(shared, &Options::default()).unwrap();
    let now = store.get_versioned("manifest").unwrap();
    store.replace("manifest", past.content, &now.version, &now.content).unwrap();
    let error = device.set_policy(Policy::default(), 7).unwrap_err();
    assert!(error.to_string().contains("set it back"), "{error}");
}
