//! Histories of writers and stores: requests are lost, delayed, repeated; writers die and follow one
//! another; and then the device has a state that it must have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{MAIN, Served, troubled};
use crate::support::{
    Beside as StoreBeside, MemoryStore, Network, Persistent, WithoutManifest, assert_sound, effort,
    explore, histories, opened, seed,
};
use bytes::Bytes;
use larder_device::Device;
use larder_objects::{
    Beside, DataKey, ObjectDevice, ObjectsError, Options, Policy, StateName, Store, StoreError,
    Version, clone, delete, info, pass_on, rebuild,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const BLOCK_BYTES: u64 = 512;
const BLOCKS: u64 = 24;

/// How long a lease holds, in seconds.
const LEASE_HOLDS: u64 = 600;

/// What each block holds: a number, or zero.
type Image = Vec<u64>;

fn read(device: &ObjectDevice) -> Result<Image, larder_device::DeviceError> {
    let block = |block| {
        let mut bytes = [0; BLOCK_BYTES as usize];
        device.read_at(&mut bytes, block * BLOCK_BYTES)?;
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes.chunks(8).all(|part| part == &bytes[..8]), "block {block} is mixed");
        Ok(number)
    };
    (0..BLOCKS).map(block).collect()
}

/// A writer, and what it has written.
struct Writer {
    device: ObjectDevice,
    network: Arc<Network>,
    now: Image,
    has_unflushed: bool,
    is_fenced: bool,
    /// A write failed: any part of its range may have changed.
    is_unclear: bool,
    /// Somebody has set the clock of the store since it was opened.
    has_other_clock: bool,
}

/// A program that reads a state, for as long as the store lets it.
struct Reader {
    device: ObjectDevice,
    image: Image,
    /// What it reads is there until then, by the clock of the store.
    until: u64,
    has_lease: bool,
}

/// A device that began with a state of the first one.
struct Clone {
    place: String,
    /// None if the request to make it failed: it may be there all the same.
    image: Option<Image>,
}

/// How programs reach a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Straight,
    /// By requests to a server.
    Http,
}

struct History {
    rng: StdRng,
    way: Way,
    /// Ends the stores that a server offers.
    served: Mutex<Vec<Served>>,
    clones: Vec<Clone>,
    delete_after: u64,
    readers: Vec<Reader>,
    followers: Vec<ObjectDevice>,
    store: Arc<MemoryStore>,
    key: Option<DataKey>,
    writers: Vec<Writer>,
    /// The content of states whose number is known.
    states: BTreeMap<u64, Image>,
    /// What the device may have, if all writers die now: what the last flush made that succeeded, or
    /// one after it that did not.
    possible: Vec<Image>,
    next: u64,
}

impl History {
    fn new(seed: u64, store: MemoryStore, way: Way, key: Option<DataKey>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = Arc::new(store);
        let policies = ["", "all=1h", "all=1h,hourly=1d,daily=30d"];
        let policy: Policy = policies[rng.random_range(0..policies.len())].parse().unwrap();
        let delete_after = [0, 600][rng.random_range(0..2)];
        store.set_clock(rng.random_range(0..1 << 32));
        let zeros = vec![0; BLOCKS as usize];
        let history = Self {
            rng,
            way,
            served: Mutex::default(),
            clones: Vec::new(),
            store,
            key,
            delete_after,
            readers: Vec::new(),
            followers: Vec::new(),
            writers: Vec::new(),
            states: BTreeMap::from([(0, zeros.clone())]),
            possible: vec![zeros],
            next: 1,
        };
        let (seen, len_bytes) = (history.seen(), BLOCKS * BLOCK_BYTES);
        ObjectDevice::create(&*seen, len_bytes, policy, delete_after).unwrap();
        history
    }

    /// What a program sees at `place`, which reaches `store` on a way where so many requests fail.
    fn reached(
        &self,
        store: impl Store + 'static,
        place: &str,
        trouble: (u64, f64),
    ) -> Arc<dyn Store> {
        let key = self.key.as_ref();
        match self.way {
            Way::Straight if place == MAIN => opened(Persistent(store), key),
            Way::Straight => {
                let store = Persistent(store);
                opened(StoreBeside { store, place: place.to_owned() }, key)
            }
            Way::Http => {
                let (seed, trouble) = trouble;
                let served = Served::new(Arc::new(store), seed, troubled(seed, trouble));
                let remote = served.at(place);
                self.served.lock().push(served);
                opened(Persistent(remote), key)
            }
        }
    }

    /// The store as a program sees it at `place`, whose requests all arrive.
    fn seen_at(&self, place: &str) -> Arc<dyn Store> {
        self.reached(Arc::clone(&self.store), place, (0, 0.0))
    }

    /// The same, for the device itself.
    fn seen(&self) -> Arc<dyn Store> {
        self.seen_at(MAIN)
    }

    /// A way to the store on which so many requests go wrong.
    fn network(&mut self) -> (Arc<Network>, (u64, f64)) {
        let trouble = if self.rng.random_bool(0.5) { 0.0 } else { 0.2 };
        let network = Network::new(Arc::clone(&self.store), self.rng.random(), trouble);
        (Arc::new(network), (self.rng.random(), trouble))
    }

    fn options(&mut self) -> Options {
        Options {
            cache: None,
            cache_bytes: self.rng.random_range(0..8) << 10,
            request_bytes: self.rng.random_range(0..8) << 10,
            segment_bytes: self.rng.random_range(1..8) << 10,
            most_ranges: self.rng.random_range(1..20),
            most_flushes: self.rng.random_range(1..12),
            lease: self.rng.random_bool(0.7),
            patience: Some(Duration::ZERO),
        }
    }

    /// Another machine opens the device for writing. All others are fenced then.
    fn open(&mut self) {
        let (network, trouble) = self.network();
        if self.rng.random_bool(0.2) {
            network.cut_after(self.rng.random_range(1..12));
        }
        let options = self.options();
        let path = self.reached(Arc::clone(&network), MAIN, trouble);
        let Ok(device) = ObjectDevice::open_elsewhere(path, &options) else {
            // It may have fenced the others all the same.
            self.retire_fenced();
            return;
        };
        for writer in &mut self.writers {
            writer.is_fenced = true;
        }
        let Ok(now) = read(&device) else { return self.retire_fenced() };
        self.assert_possible(&now);
        self.possible = vec![now.clone()];
        self.writers.push(Writer {
            device,
            network,
            now,
            has_unflushed: false,
            is_fenced: false,
            is_unclear: false,
            has_other_clock: false,
        });
    }

    /// An opening that failed may have fenced the other writers or not: all of them end.
    fn retire_fenced(&mut self) {
        while let Some(writer) = self.writers.pop() {
            self.end(writer);
        }
    }

    fn assert_possible(&self, image: &Image) {
        let is_possible = self.possible.contains(image);
        assert!(is_possible, "no flush made {image:?}: {:?}", self.possible);
    }

    /// A writer ends, in good order or not.
    fn end(&mut self, writer: Writer) {
        let Writer { device, network, now, is_fenced, .. } = writer;
        if self.rng.random_bool(0.5) {
            network.cut_after(self.rng.random_range(0..4));
        }
        if !is_fenced {
            self.possible.push(now);
        }
        drop(device);
        // What is on its way arrives, or never does.
        if self.rng.random_bool(0.5) {
            network.calm();
        }
    }

    /// Time passes, or somebody sets the clock of the store. No writer's own clock matters.
    fn pass_time(&mut self) {
        let now = self.store.now();
        if self.writers.is_empty() && self.rng.random_bool(0.8) {
            return self.store.set_clock(now + self.rng.random_range(0..500));
        }
        let days = self.rng.random_range(0..100 * 24 * 3600);
        let is_set_back = self.rng.random_bool(0.5);
        self.store.set_clock(if is_set_back { now.saturating_sub(days) } else { now + days });
        // Delays of deletions have begun by another clock, and writers go on by it.
        self.readers.clear();
        for writer in &mut self.writers {
            writer.has_other_clock = true;
        }
    }

    /// A program opens a kept state for reading.
    fn begin_to_read(&mut self) {
        let has_manifest = self.rng.random_bool(0.8);
        let store = if has_manifest {
            self.seen()
        } else {
            self.reached(WithoutManifest(Arc::clone(&self.store)), MAIN, (0, 0.0))
        };
        let states = info(&*store).unwrap().states;
        let state = states[self.rng.random_range(0..states.len())];
        let options = Options { cache_bytes: 0, ..self.options() };
        let name = StateName::Number(state.number);
        let device = ObjectDevice::open_read_only(store, Some(&name), &options).unwrap();
        let image = read(&device).unwrap();
        self.assert_known(state.number, &image);
        // A reader of the manifest makes no lease at once if objects stay long enough.
        let is_urgent = self.delete_after < 60 || !has_manifest;
        let holds = if options.lease && is_urgent { LEASE_HOLDS } else { 0 };
        let until = self.safe_for(self.delete_after.max(holds));
        self.readers.push(Reader { device, image, until, has_lease: options.lease });
    }

    /// When what is read now may be gone that stays for `seconds`, by the clock of the store.
    fn safe_for(&self, seconds: u64) -> u64 {
        let has_one_clock = self.writers.iter().all(|writer| !writer.has_other_clock);
        if has_one_clock { self.store.now() + seconds } else { 0 }
    }

    /// A reader makes its next lease, as a thread of the device does now and then.
    fn renew_lease(&mut self) {
        let at = self.rng.random_range(0..self.readers.len());
        let until = self.safe_for(LEASE_HOLDS);
        let now = self.store.now();
        let reader = &mut self.readers[at];
        if reader.has_lease && reader.until > now {
            reader.device.renew_lease();
            reader.until = until;
        }
    }

    /// A reader opens the newest state, or goes on to the next one.
    fn follow(&mut self) {
        if self.followers.is_empty() || self.rng.random_bool(0.1) {
            let options = Options { cache_bytes: 0, ..self.options() };
            let device = ObjectDevice::open_read_only(self.seen(), None, &options).unwrap();
            self.followers.push(device);
        }
        let at = self.rng.random_range(0..self.followers.len());
        if let Some(newest) = self.followers[at].newest().unwrap() {
            self.followers[at] = newest;
        }
        self.assert_possible(&read(&self.followers[at]).unwrap());
        if self.rng.random_bool(0.1) {
            self.followers.swap_remove(at);
        }
    }

    /// A reader finds what it found before, or learns that the state is gone, after its time.
    fn go_on_reading(&mut self) {
        let at = self.rng.random_range(0..self.readers.len());
        let reader = &self.readers[at];
        match read(&reader.device) {
            Ok(image) => assert_eq!(image, reader.image, "a state never changes"),
            Err(error) => {
                let said = std::error::Error::source(&error).map(ToString::to_string);
                assert!(said.as_ref().is_some_and(|it| it.contains("kept no longer")), "{error:?}");
                let (until, has_lease) = (reader.until, reader.has_lease);
                let (now, after) = (self.store.now(), self.delete_after);
                assert!(now >= until, "{error:?} {now} {until} {has_lease} {after}");
                self.readers.swap_remove(at);
            }
        }
    }

    /// A writer makes an earlier state the newest again, and ends.
    fn roll_back(&mut self) {
        let at = self.rng.random_range(0..self.writers.len());
        if self.writers[at].is_fenced {
            return;
        }
        let writer = self.writers.swap_remove(at);
        let store = self.seen();
        let states = info(&*store).unwrap().states;
        let state = states[self.rng.random_range(0..states.len())];
        let (options, name) = (self.options(), StateName::Number(state.number));
        let device = ObjectDevice::open_read_only(store, Some(&name), &options).unwrap();
        let image = read(&device).unwrap();
        // What was written is flushed first.
        self.possible.push(writer.now.clone());
        match writer.device.roll_back(&name) {
            Ok(state) => {
                self.possible = vec![image.clone()];
                self.states.insert(state.number, image.clone());
            }
            // The flush before may have forgotten the state.
            Err(ObjectsError::NoSuchState { .. }) => {}
            Err(error) => assert!(writer.network.may_fail(), "{error}"),
        }
        self.end(Writer { now: image, ..writer });
    }

    /// Somebody makes a clone of a kept state.
    fn clone(&mut self) {
        let store = self.seen();
        let states = info(&*store).unwrap().states;
        let state = states[self.rng.random_range(0..states.len())];
        let (options, name) = (self.options(), StateName::Number(state.number));
        let device = ObjectDevice::open_read_only(store, Some(&name), &options).unwrap();
        let image = read(&device).unwrap();
        drop(device);
        let place = format!("clone{}", self.clones.len());
        let (network, trouble) = self.network();
        let origin = self.reached(Arc::clone(&network), MAIN, trouble);
        let there = self.reached(Arc::clone(&network), &place, trouble);
        let made = clone(
            Beside { store: &*origin, way: &format!("../{MAIN}") },
            Beside { store: &*there, way: &format!("../{place}") },
            Some(&name),
        );
        assert!(made.is_ok() || network.may_fail(), "{made:?}");
        // What is late comes before the clone is used.
        network.calm();
        self.clones.push(Clone { place, image: made.is_ok().then_some(image) });
    }

    /// A clone has what it had, and changes without the device.
    fn use_clone(&mut self) {
        let at = self.rng.random_range(0..self.clones.len());
        let place = self.clones[at].place.clone();
        let (store, options) = (self.seen_at(&place), self.options());
        let Some(image) = &mut self.clones[at].image else { return };
        if self.rng.random_bool(0.5) {
            let device = ObjectDevice::open_read_only(store, None, &options).unwrap();
            assert_eq!(read(&device).unwrap(), *image, "{place}");
            return;
        }
        let device = ObjectDevice::open_elsewhere(store, &options).unwrap();
        assert_eq!(read(&device).unwrap(), *image, "{place}");
        for _ in 0..self.rng.random_range(0..4) {
            let block = self.rng.random_range(0..BLOCKS);
            let bytes = self.next.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
            device.write_at(&bytes, block * BLOCK_BYTES).unwrap();
            image[block as usize] = self.next;
            self.next += 1;
        }
        if self.rng.random_bool(0.3) {
            device.collect_garbage(|_, _| ()).unwrap();
        }
    }

    /// All clones have what they had, and go.
    fn end_clones(&mut self) {
        for Clone { place, image } in std::mem::take(&mut self.clones) {
            let store = self.seen_at(&place);
            if let Some(image) = image {
                assert_sound(&store);
                let options = self.options();
                let device =
                    ObjectDevice::open_read_only(Arc::clone(&store), None, &options).unwrap();
                assert_eq!(read(&device).unwrap(), image, "{place}");
            }
            match delete(&*store, true, |_, _| ()) {
                Ok(_) | Err(ObjectsError::Missing { .. }) => {}
                Err(error) => panic!("{place}: {error}"),
            }
        }
    }

    fn step(&mut self) {
        if self.rng.random_bool(if self.writers.is_empty() { 0.4 } else { 0.01 }) {
            return self.pass_time();
        }
        if self.rng.random_bool(0.04) {
            return self.begin_to_read();
        }
        if !self.readers.is_empty() && self.rng.random_bool(0.1) {
            return self.go_on_reading();
        }
        if !self.readers.is_empty() && self.rng.random_bool(0.1) {
            return self.renew_lease();
        }
        if self.rng.random_bool(0.04) {
            return self.follow();
        }
        if self.rng.random_bool(0.02) {
            return self.clone();
        }
        if !self.clones.is_empty() && self.rng.random_bool(0.04) {
            return self.use_clone();
        }
        if self.writers.is_empty() || self.rng.random_bool(0.03) {
            return self.open();
        }
        if self.rng.random_bool(0.02) {
            return self.roll_back();
        }
        let at = self.rng.random_range(0..self.writers.len());
        if self.rng.random_bool(0.03) {
            let writer = self.writers.swap_remove(at);
            return self.end(writer);
        }
        let (next, store) = (self.next, opened(Arc::clone(&self.store), self.key.as_ref()));
        let (rng, writer) = (&mut self.rng, &mut self.writers[at]);
        let first = rng.random_range(0..BLOCKS);
        let count = rng.random_range(1..=(BLOCKS - first).min(6));
        let (offset, len_bytes) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
        match rng.random_range(0..10) {
            0..5 => {
                self.next += 1;
                let bytes = next.to_le_bytes().repeat(len_bytes as usize / 8);
                if writer.device.write_at(&bytes, offset).is_ok() {
                    writer.now[first as usize..][..count as usize].fill(next);
                    writer.has_unflushed = true;
                } else {
                    writer.is_unclear = true;
                }
            }
            5 => {
                if writer.device.discard(offset, len_bytes).is_ok() {
                    writer.now[first as usize..][..count as usize].fill(0);
                    writer.has_unflushed = true;
                }
            }
            6..8 => {
                if !writer.is_fenced {
                    self.possible.push(writer.now.clone());
                }
                if writer.device.flush().is_ok() {
                    // A flush with nothing to write asks for nothing, so it cannot know.
                    let may_be_ignorant = !writer.is_fenced || !writer.has_unflushed;
                    assert!(may_be_ignorant, "a fenced writer has flushed");
                    writer.has_unflushed = false;
                    if !writer.is_fenced {
                        self.possible = vec![writer.now.clone()];
                        let number = info(&*store).unwrap().state.number;
                        self.states.insert(number, writer.now.clone());
                    }
                }
            }
            8 => {
                // A fenced writer's objects may be gone.
                match read(&writer.device) {
                    Ok(_) if writer.is_unclear => {}
                    Ok(image) => assert_eq!(image, writer.now, "what was written is read"),
                    Err(_) => assert!(writer.is_fenced || writer.network.may_fail()),
                }
            }
            _ => {
                if !writer.is_fenced {
                    self.possible.push(writer.now.clone());
                }
                let collected = writer.device.collect_garbage(|_, _| ());
                // One that failed later may have flushed.
                writer.has_unflushed = false;
                if collected.is_ok() {
                    assert!(!writer.is_fenced, "a fenced writer has made a checkpoint");
                    self.possible = vec![writer.now.clone()];
                    let number = info(&*store).unwrap().state.number;
                    self.states.insert(number, writer.now.clone());
                }
            }
        }
    }

    /// All writers end, and the device is opened once more.
    fn finish(mut self) {
        // Their leases end with them.
        self.readers.clear();
        self.followers.clear();
        self.retire_fenced();
        let options = self.options();
        let store = self.seen();
        assert_sound(&store);
        self.assert_states(&options);
        if self.rng.random_bool(0.3) {
            self.lose_the_manifest();
        }
        let device = ObjectDevice::open_elsewhere(Arc::clone(&store), &options).unwrap();
        self.assert_possible(&read(&device).unwrap());
        device.collect_garbage(|_, _| ()).unwrap();
        self.assert_possible(&read(&device).unwrap());
        drop(device);
        self.assert_states(&options);
        assert_sound(&store);
        self.end_clones();
        if self.rng.random_bool(0.3) {
            assert_nothing_is_left(&self.store, &store, &options);
        }
    }

    /// The manifest is damaged or lost, and rebuilt.
    fn lose_the_manifest(&mut self) {
        let found = self.store.get_versioned("manifest").unwrap();
        let mut content = found.content.to_vec();
        let at = self.rng.random_range(0..content.len());
        content[at] ^= 1;
        self.store.replace("manifest", content.into(), &found.version, &found.content).unwrap();
        // Reading needs no rebuilding.
        let store = self.seen();
        let device =
            ObjectDevice::open_read_only(Arc::clone(&store), None, &self.options()).unwrap();
        self.assert_possible(&read(&device).unwrap());
        if self.rng.random_bool(0.5) {
            self.store.delete("manifest").unwrap();
            // No other device is made over what is left.
            let made = ObjectDevice::create(&*store, BLOCK_BYTES, Policy::default(), 0);
            assert!(matches!(made, Err(ObjectsError::Lost { .. })), "{made:?}");
        }
        rebuild(&*store).unwrap();
        assert_sound(&store);
        assert!(matches!(rebuild(&*store), Err(ObjectsError::Sound { .. })));
    }

    /// Some of the states that the device says it keeps are there, and the last one.
    fn assert_states(&mut self, options: &Options) {
        let store = self.seen();
        let states = info(&*store).unwrap().states;
        assert!(states.is_sorted_by_key(|state| (state.number, state.time)), "{states:?}");
        let skipped = self.rng.random_range(1..=states.len().min(8));
        for state in states.iter().rev().step_by(skipped) {
            let name = StateName::Number(state.number);
            let device =
                ObjectDevice::open_read_only(Arc::clone(&store), Some(&name), options).unwrap();
            self.assert_known(state.number, &read(&device).unwrap());
        }
    }

    /// If the content of a state is known, it is this one.
    fn assert_known(&self, state: u64, image: &Image) {
        if let Some(known) = self.states.get(&state) {
            assert_eq!(image, known, "state {state}");
        }
    }
}

/// After two more rounds of garbage collection without kept states, the store has only what the
/// last state needs.
fn assert_nothing_is_left(memory: &MemoryStore, store: &Arc<dyn Store>, options: &Options) {
    let nothing = "".parse().unwrap();
    for _ in 0..3 {
        let device = ObjectDevice::open_elsewhere(Arc::clone(store), options).unwrap();
        device.set_policy(nothing, 0).unwrap();
        // A clone that failed may have left its hold.
        device.forget_missing_clones().unwrap();
        device.collect_garbage(|_, _| ()).unwrap();
    }
    let info = info(&**store).unwrap();
    let needed = info.segments.0 + info.maps.0 + info.doomed;
    // Nobody needs what a trial left; and the end of an epoch stays for ever.
    let stays = |name: &&String| {
        let content = store.get_versioned(name).unwrap().content;
        let has = |text: &[u8]| content.windows(text.len()).any(|part| part == text);
        let is_end = has(b"process ") || has(b"larder objects rebuild");
        let of_nobody = ["probe-", "copies/", "leases/"];
        let is_of_nobody = of_nobody.iter().any(|start| name.starts_with(start));
        is_of_nobody || (name.starts_with("flushes/") && is_end)
    };
    let there = memory.names().len() - memory.names().iter().filter(stays).count();
    assert!(
        there as u64 <= needed + 1,
        "{there} objects, of which {needed} and the manifest are needed: {:?}",
        memory.names()
    );
}

/// Threads write while others flush and collect garbage. Each thread finds what it wrote last.
#[test]
fn writes_and_checkpoints_at_once() {
    const THREADS: u64 = 3;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    ObjectDevice::create(&*store, BLOCKS * BLOCK_BYTES, "".parse().unwrap(), 0).unwrap();
    let options = Options {
        cache_bytes: 4096,
        request_bytes: 4096,
        cache: None,
        segment_bytes: 4096,
        most_ranges: 8,
        most_flushes: 3,
        lease: true,
        patience: Some(Duration::ZERO),
    };
    let device = ObjectDevice::open_elsewhere(Arc::clone(&store), &options).unwrap();
    let ends = AtomicBool::new(false);
    let last: Vec<Image> = thread::scope(|scope| {
        let write = |thread: u64| {
            let (device, ends) = (&device, &ends);
            move || {
                let mut rng = StdRng::seed_from_u64(seed() + thread);
                let mut mine = vec![0; (BLOCKS / THREADS) as usize];
                for number in 1.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = rng.random_range(0..mine.len());
                    let offset = (thread + at as u64 * THREADS) * BLOCK_BYTES;
                    device.write_at(&u64::to_le_bytes(number).repeat(64), offset).unwrap();
                    mine[at] = number;
                    let at = rng.random_range(0..mine.len());
                    let offset = (thread + at as u64 * THREADS) * BLOCK_BYTES;
                    let mut found = [0; 8];
                    device.read_at(&mut found, offset).unwrap();
                    assert_eq!(u64::from_le_bytes(found), mine[at], "block {at} of {thread}");
                }
                mine
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(write(thread))).collect();
        let began = Instant::now();
        let mut rounds = 0;
        while began.elapsed() < Duration::from_secs(4) * effort()
            && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
        {
            if rounds % 3 == 0 {
                device.collect_garbage(|_, _| ()).map(drop).unwrap();
            }
            device.flush().unwrap();
            rounds += 1;
        }
        ends.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    device.flush().unwrap();
    drop(device);
    let device = ObjectDevice::open_elsewhere(store, &options).unwrap();
    let image = read(&device).unwrap();
    for (block, number) in image.iter().enumerate() {
        assert_eq!(*number, last[block % THREADS as usize][block / THREADS as usize]);
    }
}

fn assert_all_end_well(
    count: u64,
    way: Way,
    store: fn() -> MemoryStore,
    key: fn() -> Option<DataKey>,
) {
    explore(count, |seed| {
        let mut history = History::new(seed, store(), way, key());
        // Most mistakes show in a few steps.
        let most = if history.rng.random_bool(0.2) { 120 } else { 40 };
        let steps = history.rng.random_range(5..most);
        (0..steps).for_each(|_| history.step());
        history.finish();
    });
}

#[test]
fn every_history_ends_with_a_state_that_a_flush_made() {
    assert_all_end_well(histories::IN_MEMORY, Way::Straight, MemoryStore::default, || None);
}

#[test]
fn every_history_in_a_directory_ends_with_a_state_that_a_flush_made() {
    assert_all_end_well(
        histories::IN_A_DIRECTORY,
        Way::Straight,
        MemoryStore::in_a_directory,
        || None,
    );
}

#[test]
fn every_encrypted_history_ends_with_a_state_that_a_flush_made() {
    let key = || Some(DataKey::random());
    assert_all_end_well(histories::ENCRYPTED, Way::Straight, MemoryStore::default, key);
}

#[test]
fn every_history_over_http_ends_with_a_state_that_a_flush_made() {
    assert_all_end_well(histories::OVER_HTTP, Way::Http, MemoryStore::default, || None);
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    #[derive(Debug)]
    struct Careless(MemoryStore);
    impl Store for Careless {
        pass_on!(0: name, get, get_versioned, try_create, delete, list);

        fn try_replace(
            &self,
            name: &str,
            content: Bytes,
            _: &Version,
        ) -> Result<Version, StoreError> {
            let version = self.0.get_versioned(name)?.version;
            self.0.try_replace(name, content, &version)
        }
    }
    let store = Careless(MemoryStore::default());
    let created = ObjectDevice::create(&store, 1 << 20, Policy::default(), 0);
    assert!(matches!(created, Err(ObjectsError::Unconditional { .. })), "{created:?}");
    assert!(store.0.names().is_empty(), "{:?}", store.0.names());
}
