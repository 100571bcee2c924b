//! Journals as files: those of killed processes and other writers, damaged, older, and gone.

use std::fs::{self, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use larder_device::{Device, DeviceError, MemoryDevice};
use larder_objects::{
    Address, Beside, Directory, JournalOptions, JournaledDevice, Layer, ObjectDevice, ObjectsError,
    Problem, Store, StoreError, add_journal, clone, info,
};
use larder_test_devices::{Recording, RecordingDevice};

use super::{Away, BLOCK_BYTES, Image, create, forever, options, put, read};
use crate::support::{error, scratch};

/// A machine with a journal and a store, in folders.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: scratch() };
        create(&*place.store("origin"));
        fs::create_dir(place.journals()).unwrap();
        place
    }

    fn journals(&self) -> std::path::PathBuf {
        self.folder.path().join("journals")
    }

    fn store(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Directory::new(self.folder.path().join(name)))
    }

    fn address(&self, name: &str) -> Address {
        format!("file://{}/{name}", self.folder.path().display()).parse().unwrap()
    }

    fn options(&self) -> JournalOptions {
        JournalOptions { path: self.journals(), len_bytes: 16 << 20 }
    }

    fn open(&self) -> Result<JournaledDevice, ObjectsError> {
        JournaledDevice::open(self.store("origin"), &options(), &self.options())
    }

    fn journal(&self) -> std::path::PathBuf {
        fs::read_dir(self.journals()).unwrap().next().unwrap().unwrap().path()
    }

    /// A process writes numbers with the store away, and is killed.
    fn leave_flushes(&self, numbers: Range<u64>) {
        let store = Arc::new(Failing(self.store("origin"), AtomicBool::new(false)));
        let device =
            JournaledDevice::open(Arc::clone(&store) as _, &options(), &self.options()).unwrap();
        store.1.store(true, Ordering::SeqCst);
        for number in numbers {
            // The thread may have found out that the store is away.
            let bytes = number.to_le_bytes().repeat(64);
            if device.write_at(&bytes, number * BLOCK_BYTES).is_err() || device.flush().is_err() {
                break;
            }
        }
    }
}

/// A store that does not answer any more.
#[derive(Debug)]
struct Failing(Arc<dyn Store>, AtomicBool);

impl Layer for Failing {
    type Below = Arc<dyn Store>;

    fn below(&self) -> &Arc<dyn Store> {
        &self.0
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&Arc<dyn Store>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.1.load(Ordering::SeqCst) {
            return Err(error(Problem::Temporary, name));
        }
        call(&self.0)
    }
}

#[test]
fn what_the_store_lacks_follows_at_the_next_opening() {
    let place = Place::new();
    place.leave_flushes(1..2);
    let reader = ObjectDevice::open_read_only(place.store("origin"), None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[1], 0);
    // Nobody of this machine forgets it.
    let refused = ObjectDevice::open(place.store("origin"), &options()).unwrap_err();
    assert!(matches!(refused, ObjectsError::JournalLeft { .. }), "{refused}");
    assert!(info(&*place.store("origin")).unwrap().writer.contains("with the journal /"));

    let device = place.open().unwrap();
    assert_eq!(read(&device).unwrap()[1], 1);
    drop(device);
    let device = ObjectDevice::open(place.store("origin"), &options()).unwrap();
    assert_eq!(read(&device).unwrap()[1], 1);
}

#[test]
fn another_writers_state_gets_nothing_of_a_journal_and_a_clone_does() {
    let place = Place::new();
    place.leave_flushes(1..2);
    let device = ObjectDevice::open_elsewhere(place.store("origin"), &options());
    let refused = device.map(drop).unwrap_err();
    assert!(matches!(refused, ObjectsError::JournalLeft { .. }), "{refused}");
    // Another machine does not have the file.
    let (journal, hidden) = (place.journal(), place.folder.path().join("hidden"));
    fs::rename(&journal, &hidden).unwrap();
    let device = ObjectDevice::open_elsewhere(place.store("origin"), &options()).unwrap();
    put(&device, 1, 77);
    drop(device);
    fs::rename(&hidden, &journal).unwrap();

    let refused = place.open().unwrap_err();
    let ObjectsError::Superseded { flushes: 1, state, .. } = &refused else { panic!("{refused}") };
    let text = refused.to_string();
    assert!(text.contains("clone --journal") && text.contains(&format!("state {state}")), "{text}");
    let reader = ObjectDevice::open_read_only(place.store("origin"), None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[1], 77);

    let (here, there) = (place.address("copy"), place.address("origin"));
    let (origin, copy) = (place.store("origin"), place.store("copy"));
    let (to_clone, to_origin) = (here.way_from(&there).unwrap(), there.way_from(&here).unwrap());
    let make = |state: &_| {
        let origin = Beside { store: &*origin, way: &to_origin };
        clone(origin, Beside { store: &*copy, way: &to_clone }, Some(state))
    };
    let added =
        add_journal(&place.journal(), &*origin, Arc::clone(&copy), &options(), make).unwrap();
    assert_eq!((added.0.number, added.1), (*state, 1));
    let reader = ObjectDevice::open_read_only(copy, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[1], 1);
}

/// What is in a file that nobody finds is not durable.
#[test]
fn a_journal_whose_file_goes_promises_nothing_more() {
    let moved = |place: &Place| fs::rename(place.journal(), place.folder.path().join("x")).unwrap();
    let removed = |place: &Place| fs::remove_file(place.journal()).unwrap();
    let replaced = |place: &Place| {
        let path = place.journal();
        fs::copy(&path, place.folder.path().join("copy")).unwrap();
        fs::rename(place.folder.path().join("copy"), path).unwrap();
    };
    let lost = |place: &Place| fs::rename(place.journals(), place.folder.path().join("y")).unwrap();
    for goes in [&moved as &dyn Fn(&Place), &removed, &replaced, &lost] {
        let place = Place::new();
        let device = place.open().unwrap();
        put(&device, 1, 1);
        device.flush().unwrap();
        goes(&place);
        put(&device, 2, 2);
        device.flush().unwrap();
        let reader = ObjectDevice::open_read_only(place.store("origin"), None, &options()).unwrap();
        assert_eq!(read(&reader).unwrap()[1..3], [1, 2]);
        assert!(!info(&*place.store("origin")).unwrap().writer.contains("with the journal"));
    }
}

fn flip(path: &Path, at: u64) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[0xff; 8]).unwrap();
}

#[test]
fn damage_before_the_last_flush_is_told_and_the_end_may_be_torn() {
    let store = Away::new();
    let disk = MemoryDevice::new("disk", 1 << 20);
    let recording = Recording::new();
    let live = Arc::new(recording.attach(&disk));
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), live).unwrap();
    store.go(true);
    for number in 1..=3 {
        put(&device, number, number);
        device.flush().unwrap();
    }
    let mut replay = recording.replay();
    replay.advance_to(usize::MAX);
    let (left, before) = (replay.images().remove(0), store.store.copy());
    store.go(false);
    // Three times a write of 1 KiB and the end of a flush, from 8 KiB on.
    for (at, is_end) in [(0, false), (600, false), (1024, false), (3584, true), (4096, true)] {
        let damaged = left.snapshot();
        damaged.write_at(&[0xff; 8], 8192 + at).unwrap();
        let store = Arc::new(before.copy());
        let opened = JournaledDevice::open_elsewhere(store, &options(), Arc::new(damaged));
        match opened {
            Ok(device) if is_end => assert_eq!(read(&device).unwrap()[1..4], [1, 2, 0], "{at}"),
            Err(error) if !is_end => assert!(error.to_string().contains("damaged"), "{error}"),
            other => panic!("{at}: {other:?}"),
        }
    }
    drop(device);
}

/// What goes on top of a state must follow it: neither an older copy of a journal fits, nor an older
/// copy of the store.
#[test]
fn an_older_copy_of_a_journal_or_of_its_store_is_refused() {
    let store = Away::new();
    let (memory, recording) = (MemoryDevice::new("disk", 1 << 20), Recording::new());
    let open = JournaledDevice::open_elsewhere;
    let disk = Arc::new(recording.attach(&memory));
    let device = open(Arc::clone(&store) as _, &forever(), disk).unwrap();
    let mut copies = Vec::new();
    for number in 1..4 {
        let before = store.store.copy();
        store.go(true);
        put(&device, number, number);
        device.flush().unwrap();
        let journal = images_now(&recording);
        copies.push((before, journal));
        store.go(false);
        device.wait_for_store().unwrap();
    }
    let clean = images_now(&recording);
    for (of_store, (store, _)) in copies.iter().enumerate() {
        for (of_journal, (_, journal)) in copies.iter().enumerate() {
            let opened = open(Arc::new(store.copy()), &options(), Arc::new(journal.snapshot()));
            // The next copy of the store has what the journal has.
            let follows = (of_journal..of_journal + 2).contains(&of_store);
            match opened {
                Ok(device) if follows => {
                    let image = read(&device).unwrap();
                    let expected: Image = (0..=of_journal as u64 + 1).collect();
                    assert_eq!(image[..expected.len()], expected);
                }
                Err(error @ ObjectsError::OlderCopy { .. }) if !follows => {
                    assert!(error.to_string().contains("objects clone --journal disk"), "{error}");
                }
                other => panic!("store {of_store}, journal {of_journal}: {other:?}"),
            }
        }
    }
    // A journal that has nothing is none that is too old.
    let newest = Arc::new(store.store.copy());
    let device = open(newest, &options(), Arc::new(clean)).unwrap();
    assert_eq!(read(&device).unwrap()[..4], [0, 1, 2, 3]);
}

/// A disk whose first flush waits for the test.
#[derive(Debug)]
struct Slow {
    disk: RecordingDevice,
    writes: AtomicU64,
    is_flushing: AtomicBool,
    may_go_on: AtomicBool,
}

impl Device for Slow {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn len_bytes(&self) -> u64 {
        self.disk.len_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.disk.read_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.disk.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.is_flushing.store(true, Ordering::SeqCst);
        while !self.may_go_on.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        self.disk.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.disk.discard(offset, len_bytes)
    }

    fn readahead(&self, _: u64, _: u64) {}
}

/// A flush of the disk makes more durable than flushes of the device have promised. A later process
/// writes in the place of that, and what is left after it promises nothing.
#[test]
fn what_an_earlier_process_left_after_its_last_flush_is_no_damage() {
    let store = Away::new();
    let (memory, recording) = (MemoryDevice::new("disk", 1 << 20), Recording::new());
    let disk = Arc::new(Slow {
        disk: recording.attach(&memory),
        writes: AtomicU64::new(0),
        is_flushing: AtomicBool::new(false),
        may_go_on: AtomicBool::new(true),
    });
    let open = JournaledDevice::open_elsewhere;
    let device = open(Arc::clone(&store) as _, &forever(), Arc::clone(&disk) as _).unwrap();
    store.go(true);
    disk.is_flushing.store(false, Ordering::SeqCst);
    disk.may_go_on.store(false, Ordering::SeqCst);
    let before = disk.writes.load(Ordering::SeqCst);
    let wait_until = |is_true: &dyn Fn() -> bool| {
        while !is_true() {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        put(&device, 1, 1);
        scope.spawn(|| device.flush().unwrap());
        wait_until(&|| disk.is_flushing.load(Ordering::SeqCst));
        // The next flush waits for that one, and takes along what comes meanwhile.
        put(&device, 2, 2);
        scope.spawn(|| device.flush().unwrap());
        wait_until(&|| disk.writes.load(Ordering::SeqCst) == before + 4);
        put(&device, 3, 3);
        disk.may_go_on.store(true, Ordering::SeqCst);
    });
    put(&device, 4, 4);
    let left = images_now(&recording);
    let before = store.store.copy();
    store.go(false);
    drop(device);

    let recording = Recording::new();
    let disk = Arc::new(recording.attach(&left));
    let store = Arc::new(before);
    let device = open(Arc::clone(&store) as _, &options(), disk).unwrap();
    assert_eq!(read(&device).unwrap()[1..5], [1, 2, 0, 0]);
    device.discard(0, BLOCK_BYTES).unwrap();
    let left = images_now(&recording);
    let before = store.copy();
    drop(device);
    let device = open(Arc::new(before), &options(), Arc::new(left)).unwrap();
    assert_eq!(read(&device).unwrap()[1..3], [1, 2]);
}

/// What the disk has.
fn images_now(recording: &Recording) -> MemoryDevice {
    let mut replay = recording.replay();
    replay.advance_to(usize::MAX);
    replay.images().remove(0)
}

#[test]
fn what_is_no_journal_stays_as_it_is() {
    let place = Place::new();
    let path = place.folder.path().join("letter");
    fs::write(&path, vec![b'x'; 16 << 20]).unwrap();
    let wrong = JournalOptions { path: path.clone(), len_bytes: 16 << 20 };
    let refused = JournaledDevice::open(place.store("origin"), &options(), &wrong).unwrap_err();
    assert!(refused.to_string().contains("it is no journal of larder"), "{refused}");
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == b'x'));
    // Nor is one of another file system.
    place.leave_flushes(1..2);
    let other = Place::new();
    let wrong = JournalOptions { path: place.journal(), len_bytes: 16 << 20 };
    let refused = JournaledDevice::open(other.store("origin"), &options(), &wrong).unwrap_err();
    assert!(refused.to_string().contains("of another file system"), "{refused}");
    flip(&place.journal(), 0);
    flip(&place.journal(), 4096);
    assert!(place.open().is_err());
}
