//! Leases: what somebody reads stays. And deleting a whole device, which nobody may read.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use larder_device::Device;
use larder_objects::{
    Beside, ObjectDevice, ObjectsError, Options, Problem, StateName, Store, StoreError, Version,
    clone, deletable, delete, info, pass_on,
};

use crate::support::{Asking, MemoryStore, WithoutManifest, error, scratch};

const BLOCK_BYTES: usize = 4096;

/// A device that keeps nothing but its last state, and deletes at once what that does not need.
fn made() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    store.set_clock(1_000_000);
    ObjectDevice::create(&*store, 1 << 20, "".parse().unwrap(), 0).unwrap();
    store
}

fn open(store: &Arc<MemoryStore>) -> ObjectDevice {
    ObjectDevice::open_elsewhere(Arc::clone(store) as _, &Options::default()).unwrap()
}

/// Writes `byte` over everything, and deletes what that makes needless.
fn overwrite(store: &Arc<MemoryStore>, byte: u8) {
    let device = open(store);
    device.write_at(&vec![byte; 16 * BLOCK_BYTES], 0).unwrap();
    device.flush().unwrap();
    for _ in 0..3 {
        device.collect_garbage(|_, _| ()).unwrap();
    }
}

fn reader(store: &Arc<MemoryStore>) -> ObjectDevice {
    // It keeps next to nothing in memory.
    let options = Options { cache_bytes: 0, request_bytes: 0, ..Options::default() };
    ObjectDevice::open_read_only(Arc::clone(store) as _, None, &options).unwrap()
}

fn read(device: &ObjectDevice) -> Result<u8, larder_device::DeviceError> {
    let mut bytes = vec![0; 16 * BLOCK_BYTES];
    device.read_at(&mut bytes, 0)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

#[test]
fn what_somebody_reads_stays_and_goes_with_the_reader() {
    let store = made();
    overwrite(&store, 1);
    let (first, before) = (reader(&store), store.names().len());
    for byte in 2..6 {
        overwrite(&store, byte);
    }
    assert_eq!(read(&first).unwrap(), 1);
    let leases = info(&*store).unwrap().leases;
    let [lease] = &leases[..] else { panic!("{leases:?}") };
    assert_eq!(lease.until, 1_000_000 + 600);
    let second = reader(&store);
    assert_eq!(read(&second).unwrap(), 5);
    drop((first, second));
    assert_eq!(info(&*store).unwrap().leases, []);
    overwrite(&store, 6);
    // Ends of epochs stay, and copies.
    let content = |names: Vec<String>| names.iter().filter(|it| it.contains("segments/")).count();
    assert!(content(store.names()) <= 2, "{:?}, {before} before", store.names());
}

/// A reader that follows reads what it knows, and what comes next.
#[test]
fn a_reader_that_follows_holds_on_what_it_reads() {
    let store = made();
    overwrite(&store, 1);
    let mut follower = reader(&store);
    for byte in 2..6 {
        let before = follower;
        assert_eq!(read(&before).unwrap(), byte - 1);
        overwrite(&store, byte);
        assert_eq!(read(&before).unwrap(), byte - 1);
        follower = before.newest().unwrap().expect("there is another state");
        assert_eq!((read(&before).unwrap(), read(&follower).unwrap()), (byte - 1, byte));
        assert!(follower.newest().unwrap().is_none());
    }
    assert_eq!(info(&*store).unwrap().leases.len(), 1);
}

/// Its lease ends by the clock of the store, and is deleted with what it held.
#[test]
fn a_reader_that_died_holds_nothing_for_ever() {
    let store = made();
    overwrite(&store, 1);
    let dead = reader(&store);
    std::mem::forget(reader(&store));
    store.set_clock(1_000_000 + 599);
    overwrite(&store, 2);
    assert_eq!(read(&dead).unwrap(), 1);
    store.set_clock(1_000_000 + 600);
    overwrite(&store, 3);
    assert_eq!(info(&*store).unwrap().leases, []);
    let said = std::error::Error::source(&read(&dead).unwrap_err()).unwrap().to_string();
    assert!(said.contains("is kept no longer"), "{said}");
}

/// A store in which nothing can be made.
#[derive(Debug)]
struct OnlyForReading(Arc<MemoryStore>);

impl Store for OnlyForReading {
    pass_on!(0: name, get, get_versioned, list);

    fn try_create(&self, name: &str, _: Bytes) -> Result<(), StoreError> {
        Err(error(Problem::Denied, name))
    }

    fn try_replace(&self, name: &str, _: Bytes, _: &Version) -> Result<Version, StoreError> {
        Err(error(Problem::Denied, name))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        Err(error(Problem::Denied, name))
    }
}

#[test]
fn keys_that_may_only_read_hold_nothing() {
    let store = made();
    overwrite(&store, 1);
    let only_for_reading: Arc<dyn Store> = Arc::new(OnlyForReading(Arc::clone(&store)));
    let options = Options { cache_bytes: 0, request_bytes: 0, ..Options::default() };
    let reader = ObjectDevice::open_read_only(only_for_reading, None, &options).unwrap();
    assert_eq!(read(&reader).unwrap(), 1);
    assert_eq!(info(&*store).unwrap().leases, []);
    overwrite(&store, 2);
    assert!(read(&reader).is_err());
    assert_eq!(read(&reader.newest().unwrap().unwrap()).unwrap(), 2);
}

/// A writer could make no copy of the manifest that forgets a state, for long. What it deleted not, the
/// next writer deletes at once.
#[test]
fn a_reader_of_a_copy_holds_on_it_at_once() {
    let store = Arc::new(MemoryStore::default());
    store.set_clock(1_000_000);
    ObjectDevice::create(&*store, 1 << 20, "all=1h".parse().unwrap(), 600).unwrap();
    overwrite(&store, 1);
    let kept = info(&*store).unwrap().state;
    let may_pass =
        |name: &str| if name.starts_with("copies/") { Err(Problem::Denied) } else { Ok(()) };
    let without_copies: Arc<dyn Store> = Arc::new(Asking { store: Arc::clone(&store), may_pass });
    for hours in 1..4 {
        store.set_clock(1_000_000 + hours * 3600);
        let shared = Arc::clone(&without_copies);
        let device = ObjectDevice::open_elsewhere(shared, &Options::default()).unwrap();
        if hours == 1 {
            device.write_at(&vec![2; 16 * BLOCK_BYTES], 0).unwrap();
        }
        // It makes a checkpoint first.
        device.collect_garbage(|_, _| ()).unwrap_err();
    }
    assert!(!info(&*store).unwrap().states.contains(&kept));
    assert!(info(&*store).unwrap().doomed > 0);

    store.set_clock(1_000_000 + 4 * 3600);
    let options = Options { cache_bytes: 0, request_bytes: 0, ..Options::default() };
    let without_manifest = Arc::new(WithoutManifest(Arc::clone(&store)));
    let name = StateName::Number(kept.number);
    let reader = ObjectDevice::open_read_only(without_manifest, Some(&name), &options).unwrap();
    let device = open(&store);
    device.collect_garbage(|_, _| ()).unwrap();
    assert_eq!(read(&reader).unwrap(), 1);
    drop(reader);
    let before = store.names().len();
    device.tend().unwrap();
    assert!(store.names().len() < before, "it was to go: {:?}", store.names());
}

/// A store that fails after some deletions.
#[derive(Debug)]
struct Interrupted {
    store: Arc<MemoryStore>,
    left: Mutex<u64>,
}

impl Store for Interrupted {
    pass_on!(store: name, get, get_versioned, try_create, try_replace, list);

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let mut left = self.left.lock().unwrap();
        *left = left.checked_sub(1).ok_or_else(|| error(Problem::Other, name))?;
        self.store.delete(name)
    }
}

#[test]
fn what_an_interrupted_deletion_leaves_is_whole_or_nothing() {
    for deletions in 0.. {
        let store = made();
        for byte in 1..4 {
            overwrite(&store, byte);
        }
        let interrupted = Interrupted { store: Arc::clone(&store), left: Mutex::new(deletions) };
        let result = delete(&interrupted, false, |_, _| ());
        let opened = ObjectDevice::open_read_only(
            Arc::clone(&store) as _,
            None,
            &Options { lease: false, ..Options::default() },
        );
        match opened {
            Ok(device) => assert_eq!(read(&device).unwrap(), 3),
            Err(error) => {
                assert!(matches!(error, ObjectsError::Missing { .. }), "{deletions}: {error}");
                assert!(larder_objects::rebuild(&*store).is_err());
            }
        }
        if result.is_ok() {
            assert!(deletions > 5, "{deletions}");
            assert_eq!(store.names(), [""; 0]);
            break;
        }
        match delete(&*store, false, |_, _| ()) {
            // Nothing was left.
            Err(ObjectsError::Missing { .. }) => {}
            result => drop(result.unwrap()),
        }
        let left = store.names();
        assert!(left.iter().all(|name| name.starts_with("probe-")), "{left:?}");
    }
}

#[test]
fn what_is_used_is_not_deleted() {
    let store = made();
    overwrite(&store, 1);
    let delete = |takes_over| delete(&*store, takes_over, |_, _| ());
    let before = deletable(&*store).unwrap();
    let reads = reader(&store);
    let refused = delete(false).unwrap_err();
    assert!(matches!(&refused, ObjectsError::IsRead { .. }), "{refused}");
    assert!(refused.to_string().contains("process "), "{refused}");
    drop(reads);
    let writer = open(&store);
    let refused = delete(false).unwrap_err();
    assert!(matches!(refused, ObjectsError::NotClosed { .. }), "{refused}");
    assert!(deletable(&*store).unwrap().objects >= before.objects);
    delete(true).unwrap();
    // It is told, and leaves nothing.
    writer.write_at(&[1; BLOCK_BYTES], 0).unwrap();
    let _ = writer.flush();
    drop(writer);
    let opened = ObjectDevice::open_read_only(Arc::clone(&store) as _, None, &Options::default());
    assert!(matches!(opened, Err(ObjectsError::Missing { .. })));
}

#[test]
fn an_origin_outlives_its_clones() {
    let folder = scratch();
    let at = |name: &str| Arc::new(larder_objects::Directory::new(folder.path().join(name)));
    let (origin, copy) = (at("origin"), at("copy"));
    ObjectDevice::create(&*origin, 1 << 20, "".parse().unwrap(), 0).unwrap();
    let [from, to] = [(&origin, "../origin"), (&copy, "../copy")]
        .map(|(store, way)| Beside { store: &**store, way });
    clone(from, to, None).unwrap();
    let refused = delete(&*origin, false, |_, _| ()).unwrap_err();
    assert!(matches!(&refused, ObjectsError::HasClones { .. }), "{refused}");
    assert!(refused.to_string().contains("../copy"), "{refused}");
    delete(&*copy, false, |_, _| ()).unwrap();
    assert_eq!(info(&*origin).unwrap().clones, []);
    delete(&*origin, false, |_, _| ()).unwrap();
    assert!(matches!(info(&*origin), Err(ObjectsError::Missing { .. })));
}
