//! All interleavings of two short scripts: between any two requests of one program, another one
//! takes a step, and a second step at any request from there on; and any reply of the first may be
//! lost.
//!
//! # Invariants
//! - What a flush that returned has written is there for whoever opens the device later.
//! - After a writer has taken over, the one before acknowledges nothing that the other has not
//!   found.
//! - A reader finds one state that the device had, completely, and none from before the last flush
//!   that returned before the reader began. Nothing of it is deleted.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_device::Device;
use larder_objects::{
    Listed, ObjectDevice, Options, Policy, Problem, Store, StoreError, Version, Versioned, verify,
};
use parking_lot::Mutex;

use crate::support::{MemoryStore, WithoutManifest, effort, error};

const BLOCK: usize = 512;

/// What a store does wrong, as those of earlier versions of larder and some servers did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The version of the manifest is only its length.
    ComparesLengths,
    /// A create of what is there seems to succeed.
    TakesAnyConflictForSuccess,
    /// The end of an epoch is collected once there is a manifest after it.
    DeletesEnds,
}

type Step = Box<dyn FnOnce() + Send>;

/// The store as one program sees it. Others take their steps before some of its requests.
struct Seen {
    store: Arc<MemoryStore>,
    mistake: Mistake,
    /// None yet while nobody counts them.
    requests: Mutex<Option<u64>>,
    steps: Mutex<Vec<(u64, Step)>>,
    /// The reply to this request is lost.
    lost: u64,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.mistake)
    }
}

impl Seen {
    fn new(store: &Arc<MemoryStore>, mistake: Mistake, lost: u64, steps: Vec<(u64, Step)>) -> Self {
        let store = Arc::clone(store);
        Self { store, mistake, requests: Mutex::new(None), steps: Mutex::new(steps), lost }
    }

    fn pass<T>(
        &self,
        name: &str,
        request: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = {
            let mut requests = self.requests.lock();
            let Some(number) = *requests else { return request() };
            *requests = Some(number + 1);
            number
        };
        loop {
            let mut steps = self.steps.lock();
            let Some(at) = steps.iter().position(|(at, _)| *at == number) else { break };
            let (_, step) = steps.remove(at);
            drop(steps);
            step();
        }
        let reply = request();
        if number == self.lost { Err(error(Problem::Temporary, name)) } else { reply }
    }

    /// From now on requests count.
    fn begin(&self) {
        *self.requests.lock() = Some(0);
    }

    fn is_end(content: &[u8]) -> bool {
        content.windows(8).any(|part| part == b"process ")
    }
}

impl Store for Seen {
    fn name(&self) -> &'static str {
        "seen"
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.pass(name, || self.store.get(name, range))
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.pass(name, || self.store.get_versioned(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.pass(name, || match self.store.try_create(name, content) {
            Err(error)
                if error.problem == Problem::Condition
                    && name.starts_with("flushes/")
                    && self.mistake == Mistake::TakesAnyConflictForSuccess =>
            {
                Ok(())
            }
            result => result,
        })
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.pass(name, || {
            let found = self.store.get_versioned(name)?;
            let is_blind = self.mistake == Mistake::ComparesLengths && name == "manifest";
            let version = if is_blind { &found.version } else { version };
            let version = self.store.try_replace(name, content, version)?;
            if self.mistake == Mistake::DeletesEnds && name == "manifest" {
                for flush in self.store.list("flushes")? {
                    if Self::is_end(&self.store.get_versioned(&flush.name)?.content) {
                        self.store.delete(&flush.name)?;
                    }
                }
            }
            Ok(version)
        })
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.pass(name, || self.store.delete(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        self.pass(prefix, || self.store.list(prefix))
    }
}

fn options() -> Options {
    Options {
        cache_bytes: 0,
        segment_bytes: 2048,
        most_flushes: 2,
        patience: Some(Duration::ZERO),
        ..Options::default()
    }
}

/// What the programs of one run have seen.
#[derive(Default)]
struct Told {
    /// What the last flush that returned made the device's content, by each writer's count.
    acknowledged: Vec<u8>,
    /// All content that the device may have had.
    states: Vec<Vec<u8>>,
    /// What the writer found that took over last.
    taken: Option<Vec<u8>>,
    wrong: Option<String>,
}

impl Told {
    fn object(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }
}

fn content(device: &ObjectDevice) -> Result<Vec<u8>, larder_device::DeviceError> {
    let mut found = Vec::new();
    for block in 0..3 {
        let mut bytes = [0; BLOCK];
        device.read_at(&mut bytes, block * BLOCK as u64)?;
        found.push(bytes[0]);
    }
    Ok(found)
}

/// Writes `value` to a block, and flushes.
fn write(device: &ObjectDevice, block: usize, value: u8, is_old: bool, told: &Mutex<Told>) {
    let Ok(mut next) = content(device) else { return };
    next[block] = value;
    if !(is_old && told.lock().taken.is_some()) {
        told.lock().states.push(next.clone());
    }
    if device.write_at(&[value; BLOCK], (block * BLOCK) as u64).is_err() || device.flush().is_err()
    {
        return;
    }
    let mut told = told.lock();
    match &told.taken {
        // Its flush came before the end, and its reply after it.
        Some(taken) if is_old && *taken == next => {}
        Some(_) if is_old => {
            told.object(format!("a writer that another one has followed has flushed {next:?}"));
        }
        _ => told.acknowledged = next,
    }
}

/// Opens the device for writing, and looks at what is there.
fn take_over(store: Arc<dyn Store>, told: &Mutex<Told>) -> Option<ObjectDevice> {
    let device = ObjectDevice::open_elsewhere(store, &options()).ok()?;
    let found = content(&device).ok()?;
    let mut told = told.lock();
    // Flushes that did not return may have arrived.
    let last = told.states.iter().rposition(|state| *state == told.acknowledged).unwrap_or(0);
    if !told.states[last..].contains(&found) {
        let why = format!("{found:?} is there, and {:?} was acknowledged", told.acknowledged);
        told.object(why);
    }
    (told.acknowledged, told.taken) = (found.clone(), Some(found.clone()));
    told.states.push(found);
    Some(device)
}

/// The program that makes requests. Between two of them the other program takes a step.
#[derive(Clone, Copy, Debug)]
enum First {
    Writer,
    TakerOver,
    Reader,
    /// The manifest cannot be read.
    ReaderOfACopy,
    Collector,
}

/// Returns what went wrong, and whether the first program has made the request `last` at all.
fn run(
    first: First,
    mistake: Mistake,
    [one, two, lost]: [u64; 3],
    delete_after: u64,
) -> (Option<String>, bool) {
    let store = Arc::new(MemoryStore::default());
    let keeps_nothing = Policy { all: 0, hourly: 0, daily: 0 };
    ObjectDevice::create(&*store, 1 << 20, keeps_nothing, delete_after).unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    told.lock().acknowledged = vec![0; 3];
    told.lock().states.push(vec![0; 3]);
    let plain = || -> Arc<dyn Store> { Arc::new(Seen::new(&store, mistake, u64::MAX, Vec::new())) };
    let other = Arc::new(Mutex::new(None::<ObjectDevice>));
    let is_reader = matches!(first, First::Reader | First::ReaderOfACopy);
    let is_of_old = !matches!(first, First::Writer | First::Collector);
    if is_of_old {
        let device = ObjectDevice::open_elsewhere(plain(), &options()).unwrap();
        write(&device, 0, 1, true, &told);
        *other.lock() = Some(device);
    }
    let step = |value: u8, collects: bool| -> Step {
        let (other, told, store) = (Arc::clone(&other), Arc::clone(&told), plain());
        Box::new(move || {
            let mut other = other.lock();
            if other.is_none() {
                *other = take_over(store, &told);
            }
            let Some(device) = &*other else { return };
            write(device, 1, value, is_of_old, &told);
            if collects && is_reader {
                // What the reader looks for is needed no more.
                write(device, 0, value + 1, is_of_old, &told);
            }
            if collects {
                let _ = device.collect_garbage(|_, _| ());
            }
        })
    };
    let seen = Arc::new(Seen::new(
        &store,
        mistake,
        lost,
        vec![(one, step(10, false)), (two, step(20, true))],
    ));
    let shared: Arc<dyn Store> = Arc::clone(&seen) as _;
    let is_of_a_copy = matches!(first, First::ReaderOfACopy);
    match first {
        First::Writer | First::Collector => {
            if let Ok(device) = ObjectDevice::open_elsewhere(shared, &options()) {
                seen.begin();
                write(&device, 0, 1, true, &told);
                write(&device, 2, 2, true, &told);
                if matches!(first, First::Collector) {
                    let _ = device.collect_garbage(|_, _| ());
                    write(&device, 0, 3, true, &told);
                }
            }
        }
        First::TakerOver => {
            seen.begin();
            if let Some(device) = take_over(shared, &told) {
                write(&device, 0, 3, false, &told);
                let _ = device.collect_garbage(|_, _| ());
                write(&device, 2, 4, false, &told);
            }
        }
        First::Reader | First::ReaderOfACopy => {
            // What was acknowledged before the reader begins is there for it.
            let earlier = told.lock().states.len() - 1;
            seen.begin();
            let store = if is_of_a_copy { Arc::new(WithoutManifest(shared)) as _ } else { shared };
            let opened = ObjectDevice::open_read_only(store, None, &options());
            let found = opened.map_err(|error| error.to_string()).and_then(|device| {
                content(&device).map_err(|error| format!("{error}: {:?}", error.source()))
            });
            let mut told = told.lock();
            match found {
                Ok(found) if told.states[earlier..].contains(&found) => {}
                Ok(found) => told.object(format!("a reader has found {found:?}")),
                Err(_) if lost != u64::MAX => {}
                Err(error) => told.object(format!("a reader misses {error}")),
            }
        }
    }
    let requests = seen.requests.lock().unwrap_or(0);
    drop(other.lock().take());
    if take_over(plain(), &told).is_none() {
        told.lock().object("nobody can open it any more".to_owned());
    }
    match verify(&(Arc::clone(&store) as Arc<dyn Store>), |_, _| ()) {
        Ok(verified) if verified.findings.is_empty() => {}
        result => told.lock().object(format!("{result:?}")),
    }
    let wrong = told.lock().wrong.take();
    (wrong, requests > two)
}

/// Runs all of them until something is wrong.
fn explore(first: First, mistake: Mistake) -> Option<String> {
    let mut runs = 0;
    for delete_after in [0, 600] {
        for one in 0_u64.. {
            let mut was_made = false;
            for two in one.. {
                let losses = [u64::MAX, one, two, one.saturating_sub(1), two + 1, two + 2];
                let losses = &losses[..if effort() > 1 { 6 } else { 3 }];
                let mut is_there = false;
                for lost in losses {
                    let (wrong, made) = run(first, mistake, [one, two, *lost], delete_after);
                    runs += 1;
                    if let Some(wrong) = wrong {
                        return Some(format!("{first:?} {one} {two} {lost}: {wrong}"));
                    }
                    is_there |= made;
                }
                was_made |= is_there;
                if !is_there {
                    break;
                }
            }
            if !was_made {
                break;
            }
        }
    }
    println!("{first:?}: {runs} runs");
    None
}

const ALL: [First; 5] =
    [First::Writer, First::TakerOver, First::Reader, First::ReaderOfACopy, First::Collector];

#[test]
fn every_interleaving_keeps_what_was_acknowledged() {
    for first in ALL {
        assert_eq!(explore(first, Mistake::None), None);
    }
}

#[test]
fn the_mistakes_of_earlier_days_are_found() {
    for mistake in
        [Mistake::ComparesLengths, Mistake::TakesAnyConflictForSuccess, Mistake::DeletesEnds]
    {
        let found = ALL.into_iter().find_map(|first| explore(first, mistake));
        println!("{mistake:?}: {found:?}");
        assert!(found.is_some(), "{mistake:?}");
    }
}
