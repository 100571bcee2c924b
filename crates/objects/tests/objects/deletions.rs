//! Nothing is deleted on a wrong reply, and nothing that somebody verifies.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use larder_device::Device;
use larder_objects::{ObjectDevice, ObjectsError, Options, Problem, Store, delete, verify};

use crate::support::{Asking, MemoryStore, assert_sound, count_down};

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

#[test]
fn a_device_whose_manifest_a_reply_denies_is_not_deleted() {
    for lies in 1..6 {
        let store = written();
        let left = AtomicU64::new(lies);
        let may_pass = |name: &str| match name {
            "manifest" if count_down(&left) => Err(Problem::NotFound),
            _ => Ok(()),
        };
        let forgetful = Asking { store: Arc::clone(&store), may_pass };
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
    // Before the first content is read.
    let act = Mutex::new(Some(act));
    let may_pass = move |name: &str| {
        if name.starts_with("segments/")
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
        Ok(())
    };
    let seen: Arc<dyn Store> = Arc::new(Asking { store: Arc::clone(&store), may_pass });
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
