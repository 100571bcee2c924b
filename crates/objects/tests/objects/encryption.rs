//! What a store sees of what is encrypted, and what it can do with it.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use larder_device::Device;
use larder_objects::streams::{
    Begun, Catalogue, Description, Download, Name, Origin, Pace, Upload,
};
use larder_objects::{
    Address, Cached, DataKey, Directory, KeySource, ObjectDevice, ObjectsError, Options, Policy,
    Problem, Settings, Store,
};
use tempfile::TempDir;

use crate::support::{MemoryStore, assert_sound, opened, scratch};

/// What nobody may find in a store.
const SECRETS: [&[u8]; 3] = [b"bread and butter", b"tuesday", b"LarderOM"];

const LEN: u64 = 1 << 20;

fn description() -> Description {
    Description {
        snapshot: Origin { uuid: [1; 16], ctransid: 1 },
        parent: None,
        clone_sources: Vec::new(),
        version: 1,
        is_compressed: false,
    }
}

fn write(store: &Arc<dyn Store>) {
    ObjectDevice::create(&**store, LEN, Policy::default(), 0).unwrap();
    let device = ObjectDevice::open_elsewhere(Arc::clone(store), &Options::default()).unwrap();
    device.write_at(&SECRETS[0].repeat(10_000), 0).unwrap();
    device.flush().unwrap();
    device.collect_garbage(|_, _| ()).unwrap();
}

fn read(store: &Arc<dyn Store>) -> Vec<u8> {
    let device =
        ObjectDevice::open_read_only(Arc::clone(store), None, &Options::default()).unwrap();
    let mut found = vec![0; 10_000 * SECRETS[0].len()];
    device.read_at(&mut found, 0).unwrap();
    found
}

fn send(store: &Arc<dyn Store>) {
    let name = Name::new(SECRETS[1]).unwrap();
    let pace = Pace { part_bytes: 100_000, at_once: 2 };
    let begun = Upload::begin(Arc::clone(store), &name, &description(), pace).unwrap();
    let Begun::Upload(mut upload) = begun else { panic!("it is there") };
    upload.write_all(&SECRETS[0].repeat(10_000)).unwrap();
    upload.finish().unwrap();
}

fn receive(store: &Arc<dyn Store>) -> Vec<u8> {
    let catalogue = Catalogue::load(&**store).unwrap();
    let mut found = Vec::new();
    let stream = &catalogue.streams[0];
    let mut download = Download::begin(Arc::clone(store), stream, 0, Pace::default()).unwrap();
    download.read_to_end(&mut found).unwrap();
    found
}

/// The files of a directory, and their content.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found
}

#[test]
fn nothing_can_be_read_in_the_store() {
    let folder = scratch();
    let store = opened(Directory::new(folder.path()), Some(&DataKey::random()));
    write(&store);
    send(&store);
    assert!(read(&store) == receive(&store));
    assert_sound(&store);
    let host = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim_ascii();
    let catalogue = Catalogue::load(&*store).unwrap();
    let listed = store.list("streams").unwrap();
    let id = catalogue.streams[0].id.to_string();
    let checksums = listed.iter().map(|part| &part.name[part.name.len() - 64..]);
    let checksums: Vec<_> = checksums.map(str::to_owned).collect();
    assert_eq!(checksums.len(), 2);
    let there = files(folder.path());
    assert!(there.iter().any(|(path, _)| path.display().to_string().contains(&id)));
    for (path, content) in there {
        let name = path.strip_prefix(folder.path()).unwrap().display().to_string();
        let has = |secret: &[u8]| content.windows(secret.len()).any(|part| part == secret);
        for secret in SECRETS {
            assert!(!has(secret) && !name.contains(str::from_utf8(secret).unwrap()), "{name}");
        }
        assert!(host.len() < 4 || !has(host), "{name}");
        // By those the store could tell what the parts hold.
        assert!(!checksums.iter().any(|checksum| name.contains(checksum)), "{name}");
    }
}

/// Puts `content` in the place of the object `name`.
fn put(store: &MemoryStore, name: &str, content: &[u8]) {
    let content = content.to_vec().into();
    if store.names().iter().any(|known| known == name) {
        store.mend(name, content).unwrap();
    } else {
        store.create(name, content).unwrap();
    }
}

/// Each object takes the place of each other one, and ends early: all who use it notice.
#[test]
fn objects_that_are_exchanged_or_cut_off_are_found_out() {
    let memory = Arc::new(MemoryStore::default());
    let key = DataKey::random();
    let store = opened(Arc::clone(&memory), Some(&key));
    write(&store);
    send(&store);
    let other = Arc::new(MemoryStore::default());
    write(&opened(Arc::clone(&other), Some(&DataKey::random())));
    let foreign = other.names().into_iter().map(|name| other.get_versioned(&name).unwrap().content);
    let foreign: Vec<_> = foreign.collect();
    let names = memory.names();
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        let content = memory.get_versioned(name).unwrap().content;
        let others = names.iter().filter(|other| *other != name);
        let others = others.map(|other| memory.get_versioned(other).unwrap().content);
        let cut = [0, 1, 40, content.len() / 2, content.len() - 1].map(|len| content.slice(..len));
        let listed = store.list("").unwrap();
        for wrong in others.chain(cut).chain(foreign.iter().cloned()) {
            put(&memory, name, &wrong);
            let known = listed.iter().map(|object| object.name.as_str());
            let damaged = known.filter(|name| match store.get_versioned(name) {
                Ok(_) => false,
                Err(error) => {
                    assert_eq!(error.problem, Problem::Damaged, "{error}");
                    true
                }
            });
            assert_eq!(damaged.count(), 1, "{name}");
        }
        put(&memory, name, &content);
    }
    assert_sound(&store);
    assert!(read(&store) == receive(&store));
}

/// An encrypted place in a directory, and a secret for it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: scratch() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self) -> Address {
        format!("file://{}", self.path("store").display()).parse().unwrap()
    }

    /// A file with a secret.
    fn secret(&self, secret: &str) -> KeySource {
        let path = self.path(secret);
        fs::write(&path, format!("{secret}\n")).unwrap();
        KeySource::file("LARDER_KEY_FILE", path)
    }

    fn settings(&self, secret: Option<&str>) -> Settings {
        let key = secret.map(|secret| self.secret(secret));
        Settings { patience: None, cache: Cached::Nothing, journal: None, key, storage_class: None }
    }

    fn create(&self, secret: &str) -> Result<(), ObjectsError> {
        let settings = self.settings(Some(secret));
        self.address().keys(&settings)?.create(settings.key.as_ref())
    }

    fn open(&self, secret: Option<&str>) -> Result<Arc<dyn Store>, ObjectsError> {
        self.address().store(&self.settings(secret))
    }
}

#[test]
fn a_wrong_key_changes_nothing() {
    let place = Place::new();
    place.create("bread").unwrap();
    let store = place.open(Some("bread")).unwrap();
    write(&store);
    let before = files(&place.path("store"));
    for result in [place.open(Some("jam")).map(drop), place.create("jam")] {
        let error = result.unwrap_err();
        assert!(matches!(error, ObjectsError::WrongKey { .. }), "{error}");
        assert!(error.to_string().contains("LARDER_KEY_FILE"), "{error}");
    }
    let error = place.open(None).unwrap_err();
    assert!(matches!(error, ObjectsError::NoKey { .. }), "{error}");
    assert!(error.to_string().contains("LARDER_KEY_FILE"), "{error}");
    assert!(files(&place.path("store")) == before);
    // A repeated creation goes on.
    place.create("bread").unwrap();
    assert!(files(&place.path("store")) == before);
}

/// A store that hides that something is encrypted gets nothing that is not.
#[test]
fn a_key_is_never_ignored() {
    let place = Place::new();
    let refused = |result: Result<Arc<dyn Store>, ObjectsError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, ObjectsError::NotEncrypted { .. }), "{error}");
    };
    refused(place.open(Some("bread")));
    place.create("bread").unwrap();
    write(&place.open(Some("bread")).unwrap());
    fs::remove_file(place.path("store/keys")).unwrap();
    refused(place.open(Some("bread")));
    // What is there is no file system without the key, and none comes in its place.
    let plain = place.open(None).unwrap();
    let device = ObjectDevice::open_read_only(Arc::clone(&plain), None, &Options::default());
    assert!(matches!(device, Err(ObjectsError::Damaged { .. })), "{device:?}");
    let error = place.create("bread").unwrap_err();
    assert!(matches!(error, ObjectsError::NotEmpty { .. }), "{error}");

    let plain = Place::new();
    write(&plain.open(None).unwrap());
    let error = plain.create("bread").unwrap_err();
    assert!(matches!(error, ObjectsError::NotEmpty { .. }), "{error}");
    assert!(!plain.path("store/keys").exists());
}

#[test]
fn keys_come_and_go_while_a_device_is_open() {
    let place = Place::new();
    place.create("bread").unwrap();
    let store = place.open(Some("bread")).unwrap();
    ObjectDevice::create(&*store, LEN, Policy::default(), 0).unwrap();
    let device = ObjectDevice::open_elsewhere(store, &Options::default()).unwrap();
    let keys = place.address().keys(&place.settings(None)).unwrap();
    let write = |byte: u8| {
        device.write_at(&[byte; 1000], 0).unwrap();
        device.flush().unwrap();
    };
    let assert_opens = |secrets: &[&str]| {
        for secret in ["bread", "butter", "jam"] {
            let found = place.open(Some(secret));
            assert_eq!(found.is_ok(), secrets.contains(&secret), "{secret}: {found:?}");
        }
    };
    let [bread, butter, jam] = ["bread", "butter", "jam"].map(|secret| place.secret(secret));
    write(1);
    assert_opens(&["bread"]);
    let added = keys.add(Some(&bread), &butter, "laptop").unwrap();
    assert_opens(&["bread", "butter"]);
    write(2);
    keys.exchange(Some(&bread), &jam).unwrap();
    assert_opens(&["butter", "jam"]);
    let (slots, own) = keys.list(Some(&butter)).unwrap();
    assert_eq!((slots.len(), own), (2, Some(1)));
    assert_eq!((slots[1].id(), slots[1].name()), (added.as_str(), "laptop"));
    write(3);
    for (error, result) in [
        ("LARDER_KEY_FILE", keys.remove(Some(&bread), &added)),
        ("none is given", keys.remove(None, &added)),
        ("there is no key", keys.remove(Some(&jam), "00000000")),
    ] {
        let said = result.unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }
    keys.remove(Some(&jam), &added).unwrap();
    assert_opens(&["jam"]);
    let last = keys.list(None).unwrap().0[0].id().to_owned();
    let error = keys.remove(Some(&jam), &last).unwrap_err();
    assert!(matches!(error, ObjectsError::LastKey { .. }), "{error}");
    write(4);
    drop(device);
    let store = place.open(Some("jam")).unwrap();
    assert_sound(&store);
    let device = ObjectDevice::open_read_only(store, None, &Options::default()).unwrap();
    let mut found = [0; 1000];
    device.read_at(&mut found, 0).unwrap();
    assert_eq!(found, [4; 1000]);
}

/// Programs add keys at once, and none gets lost.
#[test]
fn keys_are_added_at_once() {
    let place = Place::new();
    place.create("bread").unwrap();
    let bread = place.secret("bread");
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (place, bread) = (&place, &bread);
            scope.spawn(move || {
                let keys = place.address().keys(&place.settings(None)).unwrap();
                let new = place.secret(&format!("new{number}"));
                keys.add(Some(bread), &new, "").unwrap();
            });
        }
    });
    for secret in ["bread", "new0", "new1", "new2"] {
        place.open(Some(secret)).unwrap();
    }
}

/// The program in the documentation, which shares nothing with this one, reads what it wrote.
#[test]
fn the_documented_program_decrypts() {
    let place = Place::new();
    place.create("bread").unwrap();
    let keys = place.address().keys(&place.settings(None)).unwrap();
    keys.add(Some(&place.secret("bread")), &place.secret("butter"), "laptop").unwrap();
    let store = place.open(Some("bread")).unwrap();
    let contents = [b"".to_vec(), b"jam".to_vec(), SECRETS[0].repeat(5000)];
    for (number, content) in contents.iter().enumerate() {
        store.create(&format!("segments/{number}"), content.clone().into()).unwrap();
    }
    let part = format!("streams/7/1-{}", "5f".repeat(32));
    store.create(&part, contents[1].clone().into()).unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/objects.md"));
    let page = page.unwrap();
    let program = page.split_once("```python\n").unwrap().1.split_once("```\n").unwrap().0;
    let decrypt = |name: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(place.path("store")).arg(name);
        python.env("LARDER_KEY", "butter").stderr(Stdio::inherit());
        let output = python.output().unwrap();
        assert!(output.status.success(), "{name}");
        output.stdout
    };
    for (number, content) in contents.iter().enumerate() {
        assert!(decrypt(&format!("segments/{number}")) == *content, "{number}");
    }
    let listed = files(&place.path("store/streams"));
    let sealed = listed[0].0.strip_prefix(place.path("store")).unwrap().to_owned();
    assert!(decrypt(sealed.to_str().unwrap()) == contents[1]);
}
