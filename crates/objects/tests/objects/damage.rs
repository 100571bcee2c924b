//! Wrong replies of a sound store, and damage in the store: what is wrong is never used, copied or
//! kept, and what is sound is found again.

use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_device::Device;
use larder_objects::streams::{
    Begun, Catalogue, Description, Download, Name, Origin, Pace, Upload,
};
use larder_objects::{
    CacheFolder, DataKey, ObjectDevice, Options, Policy, Problem, Store, StoreError, Versioned,
    pass_on, verify,
};

use crate::support::{Asking, MemoryStore, assert_sound, count_down, keys, opened, scratch};

const MIB: usize = 1 << 20;
const LEN: usize = 12 * MIB;

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// One bit, at this part of 1000 of its length.
    Bit(usize),
    /// It ends at this part of 1000 of its length.
    Short(usize),
}

/// A store some of whose replies are wrong.
#[derive(Debug)]
struct Liar {
    store: MemoryStore,
    wrong: Wrong,
    first: u64,
    count: u64,
    replies: AtomicU64,
}

impl Liar {
    fn new(wrong: Wrong, first: u64, count: u64) -> Self {
        Self { store: MemoryStore::default(), wrong, first, count, replies: AtomicU64::new(0) }
    }

    fn again(self, wrong: Wrong, first: u64, count: u64) -> Self {
        Self { wrong, first, count, replies: AtomicU64::new(0), ..self }
    }

    fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    fn reply(&self, content: Bytes) -> Bytes {
        let number = self.replies.fetch_add(1, Ordering::Relaxed);
        if number < self.first || number - self.first >= self.count {
            return content;
        }
        let mut content = content.to_vec();
        let at = |part| (content.len() - 1) * part / 1000;
        match self.wrong {
            Wrong::Bit(part) => {
                let at = at(part);
                content[at] ^= 1;
            }
            Wrong::Short(part) => content.truncate(at(part).max(1)),
        }
        content.into()
    }
}

impl Store for Liar {
    pass_on!(store: name, try_create, try_replace, delete, list);

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        Ok(self.reply(self.store.get(name, range)?))
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let found = self.store.get_versioned(name)?;
        Ok(Versioned { content: self.reply(found.content), ..found })
    }
}

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / 4096 * 31 + at) as u8).collect()
}

const NOTHING: Policy = Policy { all: 0, hourly: 0, daily: 0 };

fn written(store: &Arc<dyn Store>) {
    ObjectDevice::create(&**store, LEN as u64, NOTHING, 0).unwrap();
    let device = ObjectDevice::open_elsewhere(Arc::clone(store), &Options::default()).unwrap();
    device.write_at(&content(), 0).unwrap();
    device.flush().unwrap();
}

fn read(store: &Arc<dyn Store>, cache: Option<&Path>) -> Vec<u8> {
    let cache = cache.map(|path| CacheFolder { path: path.to_owned(), capacity_bytes: 1 << 30 });
    let options = Options { cache, ..Options::default() };
    let device = ObjectDevice::open_read_only(Arc::clone(store), None, &options).unwrap();
    let mut found = vec![0; LEN];
    for (index, part) in found.chunks_mut(128 << 10).enumerate() {
        device.read_at(part, (index * (128 << 10)) as u64).unwrap();
    }
    found
}

fn into_store(store: Arc<Liar>) -> Liar {
    Arc::into_inner(store).unwrap()
}

const WRONG: [Wrong; 7] = [
    Wrong::Bit(0),
    Wrong::Bit(500),
    Wrong::Bit(1000),
    Wrong::Short(0),
    Wrong::Short(100),
    Wrong::Short(500),
    Wrong::Short(999),
];

#[test]
fn a_wrong_reply_is_asked_for_again_and_never_kept() {
    for key in keys() {
        ask_again(key.as_ref());
    }
}

fn ask_again(key: Option<&DataKey>) {
    for wrong in WRONG {
        for first in 0.. {
            let store = Arc::new(Liar::new(wrong, u64::MAX, 0));
            written(&opened(Arc::clone(&store), key));
            let store = Arc::new(into_store(store).again(wrong, first, 2));
            let folder = scratch();
            let found = read(&opened(Arc::clone(&store), key), Some(folder.path()));
            assert!(found == content(), "{wrong:?} {first}");
            if store.replies() <= first {
                break;
            }
            // What is in the cache now is right.
            assert!(read(&opened(Arc::clone(&store), key), Some(folder.path())) == content());
        }
    }
}

/// Little is left of several segments, so that garbage collection copies it.
#[test]
fn garbage_collection_copies_no_wrong_reply() {
    for key in keys() {
        collect_garbage(key.as_ref());
    }
}

fn collect_garbage(key: Option<&DataKey>) {
    const BLOCK: usize = 4096;
    for wrong in WRONG {
        for first in 0.. {
            let store = Arc::new(Liar::new(wrong, u64::MAX, 0));
            let shared = opened(Arc::clone(&store), key);
            ObjectDevice::create(&*shared, LEN as u64, NOTHING, 0).unwrap();
            let options = Options { segment_bytes: 64 * BLOCK, ..Options::default() };
            let device = ObjectDevice::open_elsewhere(Arc::clone(&shared), &options).unwrap();
            let all = content();
            device.write_at(&all[..512 * BLOCK], 0).unwrap();
            device.flush().unwrap();
            for block in (0..512).filter(|block| block % 8 != 0) {
                device.discard((block * BLOCK) as u64, BLOCK as u64).unwrap();
            }
            drop((device, shared));
            let store = Arc::new(into_store(store).again(wrong, first, 2));
            let shared = opened(Arc::clone(&store), key);
            // The trial of conditions has no checksums, and the opening may fail.
            if let Ok(device) = ObjectDevice::open_elsewhere(Arc::clone(&shared), &options) {
                let _ = device.collect_garbage(|_, _| ());
            }
            let is_last = store.replies() <= first;
            drop(shared);
            let store = opened(into_store(store).again(wrong, u64::MAX, 0), key);
            assert_sound(&store);
            let device = ObjectDevice::open_read_only(store, None, &options).unwrap();
            for block in (0..512).step_by(8) {
                let mut found = [0; BLOCK];
                device.read_at(&mut found, (block * BLOCK) as u64).unwrap();
                assert!(found == all[block * BLOCK..][..BLOCK], "{wrong:?} {first}: {block}");
            }
            if is_last {
                break;
            }
        }
    }
}

/// Each object is damaged in turn: verification names it, and goes on.
#[test]
fn verification_finds_all_damage_that_a_kept_state_would_meet() {
    for key in keys() {
        damage_and_verify(key.as_ref());
    }
}

fn damage_and_verify(key: Option<&DataKey>) {
    let memory = Arc::new(MemoryStore::default());
    let store = opened(Arc::clone(&memory), key);
    ObjectDevice::create(&*store, LEN as u64, Policy::default(), 0).unwrap();
    let options = Options { segment_bytes: 64 << 10, most_ranges: 4, ..Options::default() };
    for round in 0..6_u8 {
        let device = ObjectDevice::open_elsewhere(Arc::clone(&store), &options).unwrap();
        for at in 0..8_u64 {
            // More than a flush has itself goes into segments.
            let len = if at == 0 { 70_000 } else { 5000 };
            device.write_at(&vec![round; len], u64::from(round) * 300_000 + at * 20_000).unwrap();
            device.flush().unwrap();
        }
    }
    assert_sound(&store);
    let names = memory.names();
    let objects = names.iter().filter(|name| !name.starts_with("probe-"));
    let damage = |name: &str| {
        let found = memory.get_versioned(name).unwrap();
        let mut content = found.content.to_vec();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        memory.replace(name, content.into(), &found.version, &found.content).unwrap();
        found.content
    };
    let findings = || verify(&store, |_, _| ()).unwrap().findings;
    let mut damaged = Vec::new();
    for name in objects {
        let before = damage(name);
        let found = findings();
        assert!(!found.is_empty(), "{name}");
        assert!(found.iter().all(|finding| finding.problem.contains(name)), "{name}: {found:?}");
        let is_copy = name.starts_with("copies/") || name == "manifest";
        assert!(found.iter().all(|it| it.states.is_none() == is_copy), "{name}: {found:?}");
        damaged.push(name);
        let version = memory.get_versioned(name).unwrap();
        memory.replace(name, before, &version.version, &version.content).unwrap();
    }
    assert_sound(&store);
    // It goes on after the first.
    for kind in ["segments/", "flushes/"] {
        let before = findings().len();
        let objects: Vec<_> = damaged.iter().filter(|name| name.starts_with(kind)).collect();
        for name in &objects[..3] {
            damage(name);
        }
        memory.delete(objects[3]).unwrap();
        assert_eq!(findings().len(), before + 4, "{:?}", findings());
    }
}

/// Each reply while a stream is received is wrong in turn.
#[test]
fn a_stream_is_received_in_spite_of_wrong_replies() {
    for key in keys() {
        receive(key.as_ref());
    }
}

fn receive(key: Option<&DataKey>) {
    let pace = Pace { part_bytes: 1000, at_once: 2 };
    let content = &content()[..5500];
    for wrong in WRONG {
        for first in 0.. {
            let store = Arc::new(Liar::new(wrong, u64::MAX, 0));
            let shared = opened(Arc::clone(&store), key);
            let description = Description {
                snapshot: Origin { uuid: [1; 16], ctransid: 1 },
                parent: None,
                clone_sources: Vec::new(),
                version: 1,
                is_compressed: false,
            };
            let name = Name::new(b"one").unwrap();
            let begun = Upload::begin(shared, &name, &description, pace).unwrap();
            let Begun::Upload(mut upload) = begun else { panic!("it is there") };
            upload.write_all(content).unwrap();
            upload.finish().unwrap();
            let store = Arc::new(into_store(store).again(wrong, first, 2));
            let shared = opened(Arc::clone(&store), key);
            let catalogue = Catalogue::load(&*shared).unwrap();
            let stream = &catalogue.streams[0];
            let mut received = Vec::new();
            let mut download = Download::begin(shared, stream, 0, pace).unwrap();
            download.read_to_end(&mut received).unwrap();
            assert!(received == content, "{wrong:?} {first}");
            if store.replies() <= first {
                break;
            }
        }
    }
}

/// The checkpoint of a writer that closed has a state, which no flush has: without a copy of its
/// manifest, or of the next one, the flushes of the next writer seem to lack one before them.
#[test]
fn flushes_lead_on_from_a_copy_though_some_were_not_made() {
    let (kept, refused) = (Arc::new(MemoryStore::default()), Arc::new(AtomicU64::new(0)));
    let may_pass = {
        let refused = Arc::clone(&refused);
        move |name: &str| {
            let is_refused = name.starts_with("copies/") && count_down(&refused);
            if is_refused { Err(Problem::Other) } else { Ok(()) }
        }
    };
    let store: Arc<dyn Store> = Arc::new(Asking { store: Arc::clone(&kept), may_pass });
    ObjectDevice::create(&*store, 1 << 20, Policy::default(), 0).unwrap();
    let open = || ObjectDevice::open_elsewhere(Arc::clone(&store), &Options::default()).unwrap();
    let refuse = |copies: u64| refused.store(copies, Ordering::SeqCst);
    let writer = open();
    writer.write_at(&[1; 512], 0).unwrap();
    writer.flush().unwrap();
    refuse(1);
    drop(writer);
    refuse(1);
    let writer = open();
    writer.write_at(&[2; 512], 512).unwrap();
    writer.flush().unwrap();
    // It ends without closing the device, and somebody damages the manifest.
    let left = kept.copy();
    let found = left.get_versioned("manifest").unwrap();
    let damaged = found.content.slice(1..);
    left.replace("manifest", damaged, &found.version, &found.content).unwrap();
    let left: Arc<dyn Store> = Arc::new(left);
    let reader = ObjectDevice::open_read_only(left, None, &Options::default()).unwrap();
    let mut bytes = [0; 1024];
    reader.read_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[0], bytes[1023]), (1, 2));
    drop(writer);
}
