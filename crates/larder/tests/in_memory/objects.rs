//! What operations on a file system cost on object storage.

use std::sync::Arc;

use larder::objects::{Address, ObjectDevice, Options, Policy, facts_of};
use larder_mkfs::MkfsOptions;
use larder_objects::{Directory, Store};
use larder_testkit::Scratch;

use super::{DEVICE_BYTES, Device, mkfs_on, open};

#[test]
fn an_fsync_and_a_commit_cost_one_request() {
    let scratch = Scratch::new();
    let store: Arc<dyn Store> = Arc::new(Directory::new(scratch.path()));
    ObjectDevice::create(&*store, DEVICE_BYTES, Policy::default(), 0).unwrap();
    let device = Arc::new(ObjectDevice::open(store, &Options::default()).unwrap());
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    mkfs_on(&devices, &MkfsOptions::default()).unwrap();
    let fs = open(devices, larder::OpenOptions::new());
    let root = fs.subvolume("/").unwrap();
    let file = root.create("file", 0o644).unwrap();
    fs.sync().unwrap();
    let cost = |work: &dyn Fn()| {
        let before = device.requests();
        work();
        let after = device.requests();
        let gets = after.gets - before.gets;
        (after.creates - before.creates, after.replaces - before.replaces, gets)
    };
    let write = |byte: u8| file.write_at(&vec![byte; 100_000], 0).unwrap();
    let fsync = || {
        write(1);
        file.sync().unwrap();
    };
    let commit = || {
        write(2);
        fs.sync().unwrap();
    };
    assert_eq!(cost(&fsync), (1, 0, 0));
    assert_eq!(cost(&commit), (1, 0, 0));
    assert_eq!(cost(&|| fs.sync().unwrap()), (0, 0, 0), "nothing has changed");
}

/// Two mounts of one process: each shows what becomes of its own store.
#[test]
fn file_systems_of_one_process_have_numbers_of_their_own() {
    let scratch = Scratch::new();
    let make = |name: &str| {
        let url = format!("file://{}/{name}", scratch.path().display());
        let (store, options) = url.parse::<Address>().unwrap().connect().unwrap();
        ObjectDevice::create(&*store, DEVICE_BYTES, Policy::default(), 0).unwrap();
        let device = Arc::new(ObjectDevice::open(store, &options).unwrap());
        let devices: Vec<Arc<dyn Device>> = vec![device];
        mkfs_on(&devices, &MkfsOptions::default()).unwrap();
        open(devices, larder::OpenOptions::new())
    };
    let (busy, idle) = (make("busy"), make("idle"));
    let (of_busy, of_idle) = (facts_of(&busy).unwrap(), facts_of(&idle).unwrap());
    let file = busy.subvolume("/").unwrap().create("file", 0o644).unwrap();
    file.write_at(&vec![1; 100_000], 0).unwrap();
    busy.sync().unwrap();
    let facts = facts_of(&busy).unwrap();
    assert!(facts.requests.creates > of_busy.requests.creates, "{facts:?}");
    assert!(facts.writing.unwrap().state.number > of_busy.writing.unwrap().state.number);
    assert_eq!(facts_of(&idle).unwrap(), of_idle);
}
