//! Nothing is deleted on a wrong reply, and nothing that somebody verifies.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use larder_device::Device;
use larder_objects::{
    Layer, ObjectDevice, ObjectsError, Options, Problem, Store, StoreError, delete, verify,
};

use crate::support::{MemoryStore, assert_sound, error};

fn written() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    ObjectDevice::create(&*store, 8 << 20, "".parse().unwrap(), 0).unwrap();
    let device =
        ObjectDevice::open_elsewhere(Arc::clone(&store) as _, &Options::default()).unwrap();
    device.write_at(&vec![7; 2 << 20], 0).unwrap();
    device.flush().unwrap();
    drop(device);
    store
}

/// Says of the manifest so often that it is not there.
#[derive(Debug)]
struct Forgetful(Arc<MemoryStore>, AtomicU64);

impl Layer for Forgetful {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.0
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let less = |left: u64| left.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if name == "manifest" && self.1.fetch_update(set, get, less).is_ok() {
            return Err(error(Problem::NotFound, name));
        }
        call(&self.0)
    }
}

#[test]
fn a_device_whose_manifest_a_reply_denies_is_not_deleted() {
    for lies in 1..6 {
        let store = written();
        let forgetful = Forgetful(Arc::clone(&store), AtomicU64::new(lies));
        let deleted = delete(&forgetful, false, |_, _| ());
        if let Err(error) = deleted {
            let store: Arc<dyn Store> = store;
            assert_sound(&store);
            let device = ObjectDevice::open_read_only(store, None, &Options::default()).unwrap();
            let mut bytes = [0; 4];
            device.read_at(&mut bytes, 1 << 20).unwrap();
            assert_eq!(bytes, [7; 4], "{error}");
        } else {
            // It has ended the writing of others before.
            assert!(store.names().iter().all(|name| name.starts_with("copies/")), "{lies}");
        }
    }
}

#[test]
fn what_an_interrupted_deletion_left_is_deleted() {
    let store = written();
    store.delete("manifest").unwrap();
    delete(&*store, false, |_, _| ()).unwrap();
    assert_eq!(store.names(), [""; 0]);
    assert!(matches!(delete(&*store, false, |_, _| ()), Err(ObjectsError::Missing { .. })));
    assert_eq!(store.names(), [""; 0]);
}

/// Does something before it gives the first object with content.
struct Meanwhile(Arc<MemoryStore>, Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Layer for Meanwhile {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.0
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if name.starts_with("segments/")
            && let Some(act) = self.1.lock().unwrap().take()
        {
            act();
        }
        call(&self.0)
    }
}

#[test]
fn what_is_verified_stays_until_it_is_read() {
    let store = written();
    let writer = Arc::clone(&store);
    let act = move || {
        let device = ObjectDevice::open_elsewhere(writer, &Options::default()).unwrap();
        device.write_at(&vec![8; 2 << 20], 0).unwrap();
        device.collect_garbage(|_, _| ()).unwrap();
        device.collect_garbage(|_, _| ()).unwrap();
    };
    let seen: Arc<dyn Store> =
        Arc::new(Meanwhile(Arc::clone(&store), Mutex::new(Some(Box::new(act)))));
    assert_eq!(verify(&seen, |_, _| ()).unwrap().findings, []);
    // Its lease has gone with it.
    assert!(store.names().iter().all(|name| !name.starts_with("leases/")), "{:?}", store.names());
}

/// These delete what they have made themselves, and leases that have ended.
const OF_THEIR_OWN: [&str; 8] = [
    "clone.rs",
    "compact.rs",
    "confirmed.rs",
    "copies.rs",
    "lease.rs",
    "probe.rs",
    "reading.rs",
    "streams/upload.rs",
];

#[test]
fn nothing_of_others_is_deleted_without_a_confirmation() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![source.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
            if fs::read_to_string(&path).unwrap().contains("store.delete(")
                && !name.starts_with("store/")
            {
                found.push(name);
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, OF_THEIR_OWN);
}
