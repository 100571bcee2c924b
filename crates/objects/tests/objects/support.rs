//! A store in memory, the network between it and a writer, and random histories of both.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use larder_objects::{
    DataKey, Directory, Encrypted, Layer, Listed, Problem, Store, StoreError, Version, Versioned,
    pass_on, verify,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

/// How many times as long, and as much, random tests search.
pub(crate) fn effort() -> u32 {
    std::env::var("LARDER_EFFORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Where random tests begin.
pub(crate) fn seed() -> u64 {
    std::env::var("LARDER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A folder in memory, where durable writes cost nothing, if this system has one.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.unwrap()
}

/// How many random histories of a device run on each store.
pub(crate) mod histories {
    pub(crate) const IN_MEMORY: u64 = 5_500;
    pub(crate) const IN_A_DIRECTORY: u64 = 1_500;
    pub(crate) const ENCRYPTED: u64 = 1_000;
    pub(crate) const OVER_HTTP: u64 = 500;
    pub(crate) const WITH_A_JOURNAL: u64 = 1_500;

    const TOGETHER: u64 = IN_MEMORY + IN_A_DIRECTORY + ENCRYPTED + OVER_HTTP + WITH_A_JOURNAL;
    const _: () = assert!(TOGETHER == 10_000);
}

/// Runs so many histories, one for each seed.
pub(crate) fn explore(count: u64, history: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let count = count * u64::from(effort());
    for seed in seed()..seed() + count {
        if let Err(panic) = catch_unwind(|| history(seed)) {
            eprintln!("LARDER_SEED={seed} repeats it");
            resume_unwind(panic);
        }
    }
    println!("{count} histories");
}

/// What a key opens of a store.
pub(crate) fn opened<S: Store + 'static>(store: S, key: Option<&DataKey>) -> Arc<dyn Store> {
    match key {
        Some(key) => Arc::new(Encrypted::new(store, key)),
        None => Arc::new(store),
    }
}

/// Without a key, and with one.
pub(crate) fn keys() -> [Option<DataKey>; 2] {
    [None, Some(DataKey::random())]
}

/// All objects that kept states need are as they were written.
pub(crate) fn assert_sound(store: &Arc<dyn Store>) {
    assert_eq!(verify(store, |_, _| ()).unwrap().findings, []);
}

/// Objects in memory, or in a directory that goes with the store.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    objects: Mutex<Objects>,
    directory: Option<(Directory, TempDir)>,
}

#[derive(Debug, Default)]
struct Objects {
    objects: BTreeMap<String, Versioned>,
    versions: u64,
    /// Seconds since 1970.
    now: u64,
}

/// What servers say.
pub(crate) const REFUSALS: [Problem; 6] = [
    Problem::Condition,
    Problem::Denied,
    Problem::Full,
    Problem::Other,
    Problem::Temporary,
    Problem::Unsupported,
];

pub(crate) fn error(problem: Problem, name: &str) -> StoreError {
    StoreError { problem, object: name.to_owned(), source: format!("{problem:?}").into() }
}

/// A store whose requests ask `may_pass` first, with the name of their object.
pub(crate) struct Asking<F> {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) may_pass: F,
}

impl<F> fmt::Debug for Asking<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<F: Fn(&str) -> Result<(), Problem> + Send + Sync> Layer for Asking<F> {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.store
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        (self.may_pass)(name).map_err(|problem| error(problem, name))?;
        call(&self.store)
    }
}

/// A store whose manifest no reply shows as it is.
#[derive(Debug)]
pub(crate) struct WithoutManifest<S>(pub(crate) S);

impl<S: Store> Store for WithoutManifest<S> {
    pass_on!(0: name, get, try_create, try_replace, delete, list);

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let found = self.0.get_versioned(name)?;
        let is_it = name == "manifest" || name.ends_with("/manifest");
        Ok(if is_it { Versioned { content: found.content.slice(1..), ..found } } else { found })
    }
}

/// Takes one off a count that is not 0, and returns whether it did.
pub(crate) fn count_down(count: &AtomicU64) -> bool {
    let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
    count.fetch_update(set, get, |left| left.checked_sub(1)).is_ok()
}

impl MemoryStore {
    /// Objects in a directory, with a clock of the store's own.
    pub(crate) fn in_a_directory() -> Self {
        let folder = scratch();
        let directory = Directory::new(folder.path().join("main"));
        Self { directory: Some((directory, folder)), ..Self::default() }
    }

    /// A store in memory with the same objects.
    pub(crate) fn copy(&self) -> Self {
        let Objects { objects, versions, now } = &*self.objects.lock().unwrap();
        let (objects, versions, now) = (objects.clone(), *versions, *now);
        Self { objects: Mutex::new(Objects { objects, versions, now }), directory: None }
    }

    fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref().map(|(directory, _)| directory)
    }

    pub(crate) fn now(&self) -> u64 {
        self.objects.lock().unwrap().now
    }

    /// Sets the store's clock.
    pub(crate) fn set_clock(&self, now: u64) {
        self.objects.lock().unwrap().now = now;
    }

    /// The names of all objects, except those that lie beside.
    pub(crate) fn names(&self) -> Vec<String> {
        if let Some(directory) = self.directory() {
            let listed = directory.list("").unwrap();
            return listed.into_iter().map(|object| object.name).collect();
        }
        let objects = &self.objects.lock().unwrap().objects;
        objects.keys().filter(|name| !name.starts_with("../")).cloned().collect()
    }

    fn put(
        &self,
        name: &str,
        content: Bytes,
        is_right: impl Fn(Option<&Version>) -> bool,
    ) -> Result<Version, StoreError> {
        let mut store = self.objects.lock().unwrap();
        if !is_right(store.objects.get(name).map(|object| &object.version)) {
            return Err(error(Problem::Condition, name));
        }
        store.versions += 1;
        let version = Version(store.versions.to_string());
        let object = Versioned { content, version: version.clone(), modified: store.now };
        store.objects.insert(name.to_owned(), object);
        Ok(version)
    }
}

impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let content = self.get_versioned(name)?.content;
        if range.start >= content.len() as u64 {
            return Err(error(Problem::Other, name));
        }
        let clip = |at: u64| (at as usize).min(content.len());
        Ok(content.slice(clip(range.start)..clip(range.end)))
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        if let Some(directory) = self.directory() {
            return Ok(Versioned { modified: self.now(), ..directory.get_versioned(name)? });
        }
        let store = self.objects.lock().unwrap();
        let found = store.objects.get(name).ok_or_else(|| error(Problem::NotFound, name))?;
        Ok(found.clone())
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        if let Some(directory) = self.directory() {
            return directory.try_create(name, content);
        }
        self.put(name, content, |version| version.is_none()).map(drop)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        if let Some(directory) = self.directory() {
            return directory.try_replace(name, content, version);
        }
        self.put(name, content, |now| now == Some(version))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        if let Some(directory) = self.directory() {
            return directory.delete(name);
        }
        self.objects.lock().unwrap().objects.remove(name);
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        if let Some((directory, folder)) = &self.directory {
            let Some(beside) = prefix.strip_prefix("../") else { return directory.list(prefix) };
            let found = Directory::new(folder.path()).list(beside)?.into_iter();
            return Ok(found.map(|it| Listed { name: format!("../{}", it.name), ..it }).collect());
        }
        let store = self.objects.lock().unwrap();
        let is_beside = prefix.starts_with("../");
        let below = store
            .objects
            .iter()
            .filter(|(name, _)| name.starts_with(prefix) && name.starts_with("../") == is_beside);
        Ok(below
            .map(|(name, object)| Listed {
                name: name.clone(),
                len_bytes: object.content.len() as u64,
            })
            .collect())
    }
}

/// A request that changes something, on its way.
#[derive(Debug, Clone)]
enum Request {
    Create(String, Bytes),
    Replace(String, Bytes, Version),
    Delete(String),
}

impl Request {
    fn arrive(self, store: &MemoryStore) -> Result<Option<Version>, StoreError> {
        match self {
            Self::Create(name, content) => store.try_create(&name, content).map(|()| None),
            Self::Replace(name, content, version) => {
                store.try_replace(&name, content, &version).map(Some)
            }
            Self::Delete(name) => store.delete(&name).map(|()| None),
        }
    }
}

/// The way from a writer to a store: it loses requests and replies, repeats and delays requests, and
/// ends at a moment that nobody expects.
#[derive(Debug)]
pub(crate) struct Network {
    store: Arc<MemoryStore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    /// How likely each request goes wrong.
    trouble: f64,
    /// Requests that arrive later.
    delayed: Vec<Request>,
    /// How many requests the writer can still make.
    left: u64,
    /// What was told of objects, for replies that are old, or of others.
    past: Vec<Told>,
    /// Objects that were deleted, for lists that are old.
    deleted: Vec<Listed>,
}

/// The name of an object, and what a reply showed of it.
pub(crate) type Told = (String, Versioned);

/// What is wrong with a reply that seems right.
#[derive(Clone, Copy)]
pub(crate) enum Lie {
    Missing,
    Flipped,
    Cut,
    Empty,
    Longer,
    /// What somebody between the store and the reader has to say.
    Page,
    /// An earlier reply about the same object.
    Old,
    /// A reply about another one. A manifest and its copy are the same: who believes of one that it
    /// is the other learns nothing wrong, except that it is there.
    Other,
    Version,
}

impl Lie {
    pub(crate) const ALL: [Self; 9] = [
        Self::Missing,
        Self::Flipped,
        Self::Cut,
        Self::Empty,
        Self::Longer,
        Self::Page,
        Self::Old,
        Self::Other,
        Self::Version,
    ];

    pub(crate) fn told(
        self,
        name: &str,
        found: Versioned,
        past: &[Told],
        rng: &mut StdRng,
    ) -> Result<Versioned, StoreError> {
        let content = match self {
            Self::Missing => return Err(error(Problem::NotFound, name)),
            Self::Old | Self::Other => {
                let is_manifest = |name: &str| name == "manifest" || name.starts_with("copies/");
                let is_told = |(other, _): &&Told| match self {
                    Self::Old => other == name,
                    _ => other != name && !(is_manifest(name) && is_manifest(other)),
                };
                let all: Vec<_> = past.iter().filter(is_told).collect();
                let Some(at) = all.len().checked_sub(1) else { return Ok(found) };
                return Ok(all[rng.random_range(0..=at)].1.clone());
            }
            Self::Empty => Bytes::new(),
            Self::Longer => [&found.content[..], &found.content[..]].concat().into(),
            Self::Page => Bytes::from_static(b"<html><p>Sign in to this network</html>"),
            Self::Version => {
                return Ok(Versioned { version: Version("none".to_owned()), ..found });
            }
            Self::Flipped if !found.content.is_empty() => {
                let mut content = found.content.to_vec();
                let at = rng.random_range(0..content.len());
                content[at] ^= 1 << rng.random_range(0..8);
                content.into()
            }
            Self::Flipped | Self::Cut => found.content.slice(..found.content.len() / 2),
        };
        Ok(Versioned { content, ..found })
    }
}

impl Network {
    pub(crate) fn new(store: Arc<MemoryStore>, seed: u64, trouble: f64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let (delayed, past, deleted) = Default::default();
        let state = State { rng, trouble, delayed, left: u64::MAX, past, deleted };
        Self { store, state: Mutex::new(state) }
    }

    /// The writer dies after `requests` more.
    pub(crate) fn cut_after(&self, requests: u64) {
        self.state.lock().unwrap().left = requests;
    }

    /// No request goes wrong any more, and nothing is on its way.
    pub(crate) fn calm(&self) {
        let mut state = self.state.lock().unwrap();
        state.trouble = 0.0;
        for request in state.delayed.drain(..) {
            let _ = request.arrive(&self.store);
        }
    }

    /// Whether a request may fail for no other reason than the network.
    pub(crate) fn may_fail(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.left == 0 || state.trouble > 0.0
    }

    fn change(&self, name: &str, request: Request) -> Result<Option<Version>, StoreError> {
        let mut state = self.state.lock().unwrap();
        self.pass_time(&mut state, name)?;
        let trouble = state.trouble;
        let lost = || Err(error(Problem::Temporary, name));
        if !state.rng.random_bool(trouble) {
            return request.arrive(&self.store);
        }
        match state.rng.random_range(0..6) {
            // The request is lost.
            0 => lost(),
            // The server refuses it, whatever it may mean by that.
            4 => Err(error(REFUSALS[state.rng.random_range(0..REFUSALS.len())], name)),
            // The server does it, and says that it has not.
            5 => {
                let _ = request.arrive(&self.store);
                Err(error(REFUSALS[state.rng.random_range(0..REFUSALS.len())], name))
            }
            // The reply is lost.
            1 => {
                let _ = request.arrive(&self.store);
                lost()
            }
            // The request comes late.
            2 => {
                state.delayed.push(request);
                lost()
            }
            // It comes now, and once more later.
            _ => {
                state.delayed.push(request.clone());
                request.arrive(&self.store)
            }
        }
    }

    fn read<T>(
        &self,
        name: &str,
        get: impl FnOnce(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.state.lock().unwrap();
        self.pass_time(&mut state, name)?;
        let trouble = state.trouble;
        if state.rng.random_bool(trouble) {
            return Err(error(Problem::Temporary, name));
        }
        get(&self.store)
    }

    /// What arrives of a reply.
    fn tell(&self, name: &str, found: Versioned) -> Result<Versioned, StoreError> {
        let State { rng, trouble, past, .. } = &mut *self.state.lock().unwrap();
        let told = if rng.random_bool(*trouble / 2.0) {
            let lie = Lie::ALL[rng.random_range(0..Lie::ALL.len())];
            lie.told(name, found.clone(), past, rng)
        } else {
            Ok(found.clone())
        };
        past.push((name.to_owned(), found));
        told
    }

    fn pass_time(&self, state: &mut State, name: &str) -> Result<(), StoreError> {
        while !state.delayed.is_empty() && state.rng.random_bool(0.3) {
            let at = state.rng.random_range(0..state.delayed.len());
            let _ = state.delayed.swap_remove(at).arrive(&self.store);
        }
        match state.left.checked_sub(1) {
            Some(left) => state.left = left,
            None => return Err(error(Problem::Other, name)),
        }
        Ok(())
    }
}

impl Store for Network {
    fn name(&self) -> &'static str {
        "network"
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let found = Versioned {
            content: self.read(name, |store| store.get(name, range))?,
            version: Version(String::new()),
            modified: 0,
        };
        self.tell(name, found).map(|found| found.content)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        let found = self.read(name, |store| store.get_versioned(name))?;
        self.tell(name, found)
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.change(name, Request::Create(name.to_owned(), content)).map(drop)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        let request = Request::Replace(name.to_owned(), content, version.clone());
        let version = self.change(name, request)?;
        Ok(version.expect("a replacement gives a version"))
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.change(name, Request::Delete(name.to_owned()))?;
        self.state.lock().unwrap().deleted.push(Listed { name: name.to_owned(), len_bytes: 1 });
        Ok(())
    }

    /// A list may have what has gone, and it may have everything twice.
    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let mut found = self.read(prefix, |store| store.list(prefix))?;
        let State { rng, trouble, deleted, .. } = &mut *self.state.lock().unwrap();
        if rng.random_bool(*trouble / 2.0) {
            found.extend(deleted.iter().filter(|it| it.name.starts_with(prefix)).cloned());
        }
        if rng.random_bool(*trouble / 2.0) {
            found.extend(found.clone());
        }
        Ok(found)
    }
}

/// A store whose requests are repeated at once.
#[derive(Debug)]
pub(crate) struct Persistent<S>(pub(crate) S);

impl<S: Store> Layer for Persistent<S> {
    type Below = S;

    fn below(&self) -> &S {
        &self.0
    }

    fn pass<T>(
        &self,
        _: &str,
        call: impl Fn(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..5 {
            match call(&self.0) {
                Err(error) if error.problem == Problem::Temporary => {}
                result => return result,
            }
        }
        call(&self.0)
    }
}

/// What lies beside a store, in the folder `place`, as the store there.
#[derive(Debug)]
pub(crate) struct Beside<S> {
    pub(crate) store: S,
    pub(crate) place: String,
}

impl<S: Store> Beside<S> {
    /// The name of an object in the other store, which lies in the folder `main`.
    fn name(&self, name: &str) -> String {
        match name.strip_prefix("../main/") {
            Some(name) => name.to_owned(),
            None if name.starts_with("../") => name.to_owned(),
            None => format!("../{}/{name}", self.place),
        }
    }
}

impl<S: Store> Store for Beside<S> {
    pass_on!(store: name);

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.store.get(&self.name(name), range)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.store.get_versioned(&self.name(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.store.try_create(&self.name(name), content)
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        self.store.try_replace(&self.name(name), content, version)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(&self.name(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let found = self.store.list(&self.name(prefix))?.into_iter();
        let here = self.name("");
        let named = |it: Listed| {
            let name = it.name.strip_prefix(&here).unwrap_or(&it.name).to_owned();
            Listed { name, ..it }
        };
        Ok(found.map(named).collect())
    }
}
