//! A journal on a local disk: what a flush has promised is there after crashes and power cuts, and
//! never goes on top of what another writer has written.

use std::fs::{self, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use larder_device::{Device, DeviceError, MemoryDevice, Operation};
use larder_objects::{
    Address, Beside, Directory, JournalOptions, JournaledDevice, Layer, ObjectDevice, ObjectsError,
    Options, Policy, Problem, Store, StoreError, add_journal, clone, info,
};
use larder_test_devices::{Fault, FaultDevice, Recording, RecordingDevice, Survival};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{
    MemoryStore, Network, Persistent, assert_sound, effort, error, explore, scratch,
};

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

/// A machine with a journal, and what a crash of it may leave.
struct History {
    rng: StdRng,
    store: Arc<MemoryStore>,
    disk: MemoryDevice,
    running: Option<Running>,
    /// What the device may have after a crash.
    possible: Vec<Image>,
    /// What the store alone may have.
    stored: Vec<Image>,
    /// Another machine has written what the journal's flushes do not follow.
    is_superseded: bool,
    /// Another machine has written since the last opening with the journal.
    has_other: bool,
    next: u64,
}

struct Running {
    device: JournaledDevice,
    recording: Recording,
    network: Arc<Network>,
    now: Image,
    is_fenced: bool,
    has_failed: bool,
    has_unflushed: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = Arc::new(MemoryStore::default());
        create(&*store);
        let zeros = vec![0; BLOCKS as usize];
        let disk = MemoryDevice::new("disk", rng.random_range(20..80) << 10);
        Self {
            rng,
            store,
            disk,
            running: None,
            possible: vec![zeros.clone()],
            stored: vec![zeros],
            is_superseded: false,
            has_other: false,
            next: 1,
        }
    }

    fn options(&mut self) -> Options {
        Options {
            cache_bytes: self.rng.random_range(0..8) << 10,
            segment_bytes: self.rng.random_range(1..8) << 10,
            most_ranges: self.rng.random_range(1..20),
            most_flushes: self.rng.random_range(1..12),
            ..options()
        }
    }

    /// The machine starts again.
    fn open(&mut self) {
        let trouble = if self.rng.random_bool(0.6) { 0.0 } else { 0.1 };
        let network = Network::new(Arc::clone(&self.store), self.rng.random(), trouble);
        let network = Arc::new(network);
        if self.rng.random_bool(0.3) {
            network.cut_after(self.rng.random_range(1..40));
        }
        let recording = Recording::new();
        let disk = recording.attach(&self.disk);
        let store = Arc::new(Persistent(Arc::clone(&network)));
        let options = self.options();
        match JournaledDevice::open_elsewhere(store, &options, Arc::new(disk)) {
            Ok(device) => {
                assert!(
                    !self.is_superseded,
                    "the journal is used on top of another writer's state"
                );
                let Ok(now) = read(&device) else {
                    drop(device);
                    return self.take_disk(&recording);
                };
                assert!(self.possible.contains(&now), "{now:?}: {:?}", self.possible);
                self.has_other = false;
                self.possible = vec![now.clone()];
                self.stored.push(now.clone());
                self.running = Some(Running {
                    device,
                    recording,
                    network,
                    now,
                    is_fenced: false,
                    has_failed: false,
                    has_unflushed: false,
                });
            }
            Err(ObjectsError::Superseded { .. }) => {
                // The store may have all that is in it: the header was not written in time.
                assert!(self.has_other, "nobody else has written");
                // The user gives it up.
                self.disk = MemoryDevice::new("disk", self.disk.len_bytes());
                self.is_superseded = false;
                self.possible.clone_from(&self.stored);
            }
            Err(error) => {
                assert!(network.may_fail(), "{error}");
                network.calm();
                self.take_disk(&recording);
            }
        }
    }

    /// The disk stays as it is after a process ended, or as a power cut leaves it.
    fn take_disk(&mut self, recording: &Recording) {
        let mut replay = recording.replay();
        replay.advance_to(usize::MAX);
        let rng = &mut self.rng;
        let is_cut = rng.random_bool(0.5);
        let mut images = replay.power_cut(|_, _| match rng.random_range(0..3) {
            _ if !is_cut => Survival::Whole,
            0 => Survival::Whole,
            1 => Survival::Lost,
            _ => Survival::Torn { sectors: rng.random_range(0..6) },
        });
        self.disk = images.remove(0);
    }

    /// The machine ends, in good order or not.
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        let Running { device, recording, network, now, .. } = running;
        if self.rng.random_bool(0.7) {
            network.cut_after(self.rng.random_range(0..6));
        }
        // Closing flushes.
        self.possible.push(now.clone());
        self.stored.push(now);
        drop(device);
        if self.rng.random_bool(0.5) {
            network.calm();
        }
        self.take_disk(&recording);
    }

    /// Another machine mounts it, without the journal, and writes.
    fn take_over(&mut self) {
        let options = self.options();
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        let device = ObjectDevice::open_elsewhere(store, &options).unwrap();
        let mut now = read(&device).unwrap();
        assert!(self.stored.contains(&now), "the store has what no flush made");
        if let Some(running) = &mut self.running {
            running.is_fenced = true;
        }
        self.has_other = true;
        // It may be that the journal had nothing more.
        self.is_superseded |= !self.possible.contains(&now);
        for _ in 0..self.rng.random_range(0..4) {
            let block = self.rng.random_range(0..BLOCKS);
            put(&device, block, self.next);
            now[block as usize] = self.next;
            self.next += 1;
            device.flush().unwrap();
        }
        drop(device);
        self.stored = vec![now.clone()];
        if !self.is_superseded {
            self.possible = vec![now];
        }
    }

    fn step(&mut self) {
        if self.running.is_none() {
            return if self.rng.random_bool(0.2) { self.take_over() } else { self.open() };
        }
        match self.rng.random_range(0..100) {
            0..4 => return self.end(),
            4 => return self.take_over(),
            _ => {}
        }
        let (rng, running) = (&mut self.rng, self.running.as_mut().unwrap());
        let first = rng.random_range(0..BLOCKS);
        let count = rng.random_range(1..=(BLOCKS - first).min(6));
        let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
        let blocks = first as usize..(first + count) as usize;
        match rng.random_range(0..12) {
            0..6 => {
                running.has_unflushed = true;
                let bytes = self.next.to_le_bytes().repeat(len as usize / 8);
                match running.device.write_at(&bytes, offset) {
                    Ok(()) => running.now[blocks].fill(self.next),
                    Err(_) => running.has_failed = true,
                }
                self.next += 1;
            }
            6 => {
                running.has_unflushed = true;
                match running.device.discard(offset, len) {
                    Ok(()) => running.now[blocks].fill(0),
                    Err(_) => running.has_failed = true,
                }
            }
            7..10 => {
                if running.is_fenced {
                    // What it promises is in the journal alone.
                    if running.device.flush().is_ok()
                        && std::mem::take(&mut running.has_unflushed)
                        && !self.possible.contains(&running.now)
                    {
                        self.is_superseded = true;
                        self.possible = vec![running.now.clone()];
                    }
                    return;
                }
                self.stored.push(running.now.clone());
                self.possible.push(running.now.clone());
                match running.device.flush() {
                    Ok(()) => {
                        running.has_unflushed = false;
                        self.possible = vec![running.now.clone()];
                    }
                    Err(_) => running.has_failed = true,
                }
            }
            10 => match read(&running.device) {
                Ok(image) if running.has_failed => drop(image),
                Ok(image) => assert_eq!(image, running.now),
                Err(_) => assert!(running.is_fenced || running.network.may_fail()),
            },
            _ => {
                if running.device.wait_for_store().is_ok()
                    && !running.is_fenced
                    && !running.has_failed
                {
                    self.stored.clone_from(&self.possible);
                }
            }
        }
    }

    fn finish(mut self) {
        self.end();
        for _ in 0..20 {
            self.open();
            if let Some(running) = self.running.take() {
                running.network.calm();
                drop(running.device);
                break;
            }
        }
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        assert_sound(&store);
    }
}

#[test]
fn every_history_with_a_journal_ends_with_a_state_that_a_flush_made() {
    explore(Duration::from_secs(4), 10_000, |seed| {
        let mut history = History::new(seed);
        let steps = history.rng.random_range(5..150);
        (0..steps).for_each(|_| history.step());
        history.finish();
    });
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

#[test]
fn a_flush_waits_for_the_journal_and_not_for_the_store() {
    let store = Away::new();
    let disk = MemoryDevice::new("disk", 1 << 20);
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), Arc::new(disk))
            .unwrap();
    store.go(true);
    for number in 1..=20 {
        put(&device, number % BLOCKS, number);
        device.flush().unwrap();
    }
    assert_eq!(read(&device).unwrap()[20], 20);
    assert_eq!(device.trouble(), None, "nobody waits");
    store.go(false);
    device.wait_for_store().unwrap();
    let reader = ObjectDevice::open_read_only(Arc::clone(&store) as _, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[20], 20);
    drop(device);
}

/// More than the journal takes waits for the store, and loses nothing.
#[test]
fn a_full_journal_waits_for_the_store() {
    let store = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 40 << 10));
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), disk).unwrap();
    store.go(true);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=200 {
                put(&device, number % BLOCKS, number);
                device.flush().unwrap();
                done.store(number, Ordering::SeqCst);
            }
        });
        while device.trouble().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!((10..199).contains(&done.load(Ordering::SeqCst)));
        store.go(false);
    });
    assert_eq!(read(&device).unwrap()[8], 200);
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap()[8], 200);
}

/// Threads write while the store gets what others have flushed. Each finds what it wrote last.
#[test]
fn threads_find_what_they_wrote() {
    const THREADS: u64 = 3;
    let store: Arc<dyn Store> = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 60 << 10));
    let device = JournaledDevice::open_elsewhere(Arc::clone(&store), &forever(), disk).unwrap();
    let write = |thread: u64| {
        let mut mine = vec![0; (BLOCKS / THREADS) as usize];
        let mut rng = StdRng::seed_from_u64(thread);
        for number in 1..4000 * u64::from(effort()) {
            let (one, other) = (rng.random_range(0..mine.len()), rng.random_range(0..mine.len()));
            put(&device, thread + one as u64 * THREADS, number);
            mine[one] = number;
            if rng.random_bool(0.3) {
                device.flush().unwrap();
            }
            let mut found = [0; 8];
            device.read_at(&mut found, (thread + other as u64 * THREADS) * BLOCK_BYTES).unwrap();
            assert_eq!(u64::from_le_bytes(found), mine[other], "block {other} of {thread}");
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || write(thread));
        }
    });
    let last = read(&device).unwrap();
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap(), last);
}

/// What one flush makes durable may be more than the journal takes.
#[test]
fn more_than_the_journal_takes_goes_through() {
    let store = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 20 << 10));
    let device =
        JournaledDevice::open_elsewhere(Arc::clone(&store) as _, &forever(), disk).unwrap();
    for round in 0..3 {
        for number in 1..=100 {
            put(&device, number % BLOCKS, round * 1000 + number);
        }
        let before = read(&device).unwrap();
        device.flush().unwrap();
        assert_eq!(read(&device).unwrap(), before);
        // It takes the journal again.
        store.go(true);
        put(&device, 0, round);
        device.flush().unwrap();
        store.go(false);
    }
    let last = read(&device).unwrap();
    drop(device);
    let reader = ObjectDevice::open_read_only(store, None, &options()).unwrap();
    assert_eq!(read(&reader).unwrap(), last);
}

/// A disk that fails loses nothing that it can still read: flushes wait for the store then, and
/// nothing of the journal is used later.
#[test]
fn a_broken_disk_makes_flushes_wait_for_the_store() {
    for operation in [Operation::Write, Operation::Flush] {
        for after in 0..30 {
            let store = Away::new();
            let memory = Arc::new(MemoryDevice::new("disk", 40 << 10));
            let disk = Arc::new(FaultDevice::new(Arc::clone(&memory) as _));
            let open = JournaledDevice::open_elsewhere;
            let device = open(Arc::clone(&store) as _, &forever(), Arc::clone(&disk) as _).unwrap();
            disk.inject(Fault::fail(operation).after(after).times(u64::MAX));
            for number in 1..=40 {
                put(&device, number % BLOCKS, number);
                device.flush().unwrap();
            }
            let reader =
                ObjectDevice::open_read_only(Arc::clone(&store) as _, None, &options()).unwrap();
            let last = read(&device).unwrap();
            assert_eq!(read(&reader).unwrap(), last, "{operation} {after}");
            drop((reader, device));
            disk.heal();
            let device = open(store, &forever(), disk).unwrap();
            assert_eq!(read(&device).unwrap(), last, "{operation} {after}");
        }
    }
}

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
