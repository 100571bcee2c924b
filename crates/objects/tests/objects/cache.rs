//! The cache on disk, below a device.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use larder_device::Device;
use larder_objects::{CacheFolder, Directory, ObjectDevice, Options, Policy, Store, rebuild};

use crate::support::scratch;

const MIB: usize = 1 << 20;
const LEN: usize = 24 * MIB;

fn content(seed: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at / 4096 * 31 + at + seed) as u8).collect()
}

fn open(store: &Path, cache: &Path) -> ObjectDevice {
    let store: Arc<dyn Store> = Arc::new(Directory::new(store));
    let cache = Some(CacheFolder { path: cache.to_owned(), capacity_bytes: 1 << 30 });
    ObjectDevice::open_read_only(store, None, &Options { cache, ..Options::default() }).unwrap()
}

fn read(device: &ObjectDevice) -> Vec<u8> {
    let mut found = vec![0; LEN];
    for (index, part) in found.chunks_mut(128 << 10).enumerate() {
        device.read_at(part, (index * (128 << 10)) as u64).unwrap();
    }
    found
}

/// Writes `content` to the device in `folder`, which it makes if there is none.
fn write(folder: &Path, content: &[u8]) {
    if !folder.exists() {
        let store = Directory::new(folder);
        ObjectDevice::create(&store, LEN as u64, Policy::default(), 0).unwrap();
    }
    write_at(folder, content, 0);
}

fn write_at(folder: &Path, content: &[u8], offset: u64) {
    let device = ObjectDevice::open(Arc::new(Directory::new(folder)), &Options::default()).unwrap();
    device.write_at(content, offset).unwrap();
    device.flush().unwrap();
}

#[test]
fn a_later_process_requests_nothing_that_is_on_disk() {
    let temporary = scratch();
    let (store, cache) = (temporary.path().join("store"), temporary.path().join("cache"));
    write(&store, &content(0));
    let opening = open(&store, &cache).requests().gets;
    let first = open(&store, &cache);
    assert_eq!(read(&first), content(0));
    assert!(first.requests().got_bytes > LEN as u64);
    drop(first);
    let second = open(&store, &cache);
    assert_eq!(read(&second), content(0));
    assert_eq!(second.requests().gets, opening);
    assert!(second.requests().got_bytes < MIB as u64);
}

#[test]
fn a_store_that_was_set_back_is_not_mixed_with_what_it_was() {
    let temporary = scratch();
    let (store, cache) = (temporary.path().join("store"), temporary.path().join("cache"));
    write(&store, &content(0));
    let backup = fs::read(store.join("manifest")).unwrap();
    write(&store, &content(1));
    assert_eq!(read(&open(&store, &cache)), content(1));
    // The administrator restores the manifest, and the next writer has the same epoch again.
    fs::write(store.join("manifest"), backup).unwrap();
    assert_eq!(read(&open(&store, &cache)), content(0));
    write(&store, &content(2));
    assert_eq!(read(&open(&store, &cache)), content(2));
    // Nor are the copies of the manifest.
    fs::remove_file(store.join("manifest")).unwrap();
    rebuild(&Directory::new(&store)).unwrap();
    assert_eq!(read(&open(&store, &cache)), content(2));
}

#[test]
fn reads_here_and_there_fetch_little() {
    let temporary = scratch();
    let (store, cache) = (temporary.path().join("store"), temporary.path().join("cache"));
    let content = content(0);
    write(&store, &content);
    let device = open(&store, &cache);
    let opening = device.requests().got_bytes;
    let mut part = [0; 4096];
    let reads = LEN / MIB;
    for read in 0..reads {
        let at = read * 7 % reads * MIB + read * 16_384;
        device.read_at(&mut part, at as u64).unwrap();
        assert!(part == content[at..at + part.len()]);
    }
    let fetched = device.requests().got_bytes - opening;
    assert!(fetched <= reads as u64 * (65 << 10), "{fetched}");
}

/// One chunk of a segment is on disk, the window of requests is wide, and the segment has no other
/// chunk: servers refuse requests that start behind the end.
#[test]
fn nothing_is_requested_behind_the_end_of_a_segment() {
    const SMALL: usize = 200_000;
    let temporary = scratch();
    let (store, cache) = (temporary.path().join("store"), temporary.path().join("cache"));
    write(&store, &content(0));
    write(&store, &content(1)[..SMALL]);
    let read_small = |device: &ObjectDevice| {
        let mut found = vec![0; SMALL];
        device.read_at(&mut found, 0).unwrap();
        assert!(found == content(1)[..SMALL]);
    };
    read_small(&open(&store, &cache));
    let device = open(&store, &cache);
    let mut rest = vec![0; LEN - MIB];
    for (index, part) in rest.chunks_mut(128 << 10).enumerate() {
        device.read_at(part, (MIB + index * (128 << 10)) as u64).unwrap();
    }
    assert!(rest == content(0)[MIB..]);
    let before = device.requests().gets;
    read_small(&device);
    assert_eq!(device.requests().gets, before);
}

/// A caller whose own checksum fails gets what the store has, not what was kept.
#[test]
fn what_is_doubted_is_fetched_again() {
    let temporary = scratch();
    let (store, cache) = (temporary.path().join("store"), temporary.path().join("cache"));
    write(&store, &content(0));
    drop(read(&open(&store, &cache)));
    let device = open(&store, &cache);
    let mut found = vec![0; 4096];
    let mut read_one = || {
        device.read_at(&mut found, 0).unwrap();
        assert!(found == content(0)[..4096]);
        device.requests().gets
    };
    let before = read_one();
    assert!(device.doubt(0, 4096));
    assert_eq!(read_one(), before + 1);
    assert!(device.doubt(0, 4096));
    assert!(!device.doubt(0, 4096), "no copy is left");
}
