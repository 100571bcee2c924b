//! Clones share the objects of their origin, and neither side changes the other.

use std::path::Path;
use std::sync::Arc;

use larder_device::Device;
use larder_objects::{
    Address, Beside, Directory, ObjectDevice, ObjectsError, Options, Policy, StateName, Store,
    clone, info, rebuild, verify,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{self, MemoryStore, assert_sound, scratch, seed};

const BLOCK: usize = 512;
const BLOCKS: usize = 64;
const NOTHING: Policy = Policy { all: 0, hourly: 0, daily: 0 };

fn options() -> Options {
    Options { segment_bytes: 8 << 10, most_ranges: 6, most_flushes: 4, ..Options::default() }
}

/// A device in a directory, and what it must have.
struct Copy {
    name: String,
    image: Vec<u64>,
}

struct Family<'a> {
    folder: &'a Path,
    copies: Vec<Copy>,
}

impl Family<'_> {
    fn store(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Directory::new(self.folder.join(name)))
    }

    fn address(&self, name: &str) -> Address {
        format!("file://{}/{name}", self.folder.display()).parse().unwrap()
    }

    fn clone(&mut self, from: usize, name: String) {
        let origin = &self.copies[from];
        let (here, there) = (self.address(&name), self.address(&origin.name));
        let (store, origin_store) = (self.store(&name), self.store(&origin.name));
        let to_clone = here.way_from(&there).unwrap();
        let to_origin = there.way_from(&here).unwrap();
        clone(
            Beside { store: &*origin_store, way: &to_origin },
            Beside { store: &*store, way: &to_clone },
            None,
        )
        .unwrap();
        let image = origin.image.clone();
        self.copies.push(Copy { name, image });
    }

    fn write(&mut self, which: usize, rng: &mut StdRng) {
        let store = self.store(&self.copies[which].name);
        let copy = &mut self.copies[which];
        let device = ObjectDevice::open_elsewhere(store, &options()).unwrap();
        for _ in 0..rng.random_range(0..12) {
            let (at, number) = (rng.random_range(0..BLOCKS), rng.random_range(1..1000));
            device
                .write_at(&u64::to_le_bytes(number).repeat(BLOCK / 8), (at * BLOCK) as u64)
                .unwrap();
            copy.image[at] = number;
            if rng.random_bool(0.3) {
                device.flush().unwrap();
            }
        }
        if rng.random_bool(0.6) {
            device.collect_garbage(|_, _| ()).unwrap();
        }
        // A crash: nothing says that it was closed.
        if rng.random_bool(0.3) {
            device.flush().unwrap();
            std::mem::forget(device);
        }
    }

    fn check(&self) {
        for copy in &self.copies {
            let store = self.store(&copy.name);
            assert_sound(&store);
            let device = ObjectDevice::open_read_only(store, None, &options()).unwrap();
            for (at, number) in copy.image.iter().enumerate() {
                let mut found = [0; BLOCK];
                device.read_at(&mut found, (at * BLOCK) as u64).unwrap();
                assert_eq!(found, *number.to_le_bytes().repeat(BLOCK / 8), "{} {at}", copy.name);
            }
        }
    }
}

#[test]
fn neither_side_changes_the_other() {
    for round in 0..12 {
        let mut rng = StdRng::seed_from_u64(seed() + round);
        let folder = scratch();
        let mut family = Family { folder: folder.path(), copies: Vec::new() };
        let name = "first".to_owned();
        ObjectDevice::create(&*family.store(&name), (BLOCK * BLOCKS) as u64, NOTHING, 0).unwrap();
        family.copies.push(Copy { name, image: vec![0; BLOCKS] });
        for step in 0..40 {
            let which = rng.random_range(0..family.copies.len());
            if rng.random_bool(0.15) && family.copies.len() < 5 {
                family.clone(which, format!("clones/{step}"));
            } else {
                family.write(which, &mut rng);
            }
            family.check();
        }
        let clones: usize = family
            .copies
            .iter()
            .map(|it| info(&*family.store(&it.name)).unwrap().clones.len())
            .sum();
        assert_eq!(clones, family.copies.len() - 1);
    }
}

#[test]
fn what_only_a_clone_needed_goes_after_the_clone_has_gone() {
    let folder = scratch();
    let mut family = Family { folder: folder.path(), copies: Vec::new() };
    let name = "first".to_owned();
    let store = family.store(&name);
    ObjectDevice::create(&*store, (BLOCK * BLOCKS) as u64, NOTHING, 0).unwrap();
    family.copies.push(Copy { name, image: vec![7; BLOCKS] });
    let fill = |number: u64| {
        let device = ObjectDevice::open_elsewhere(Arc::clone(&store), &options()).unwrap();
        device.write_at(&number.to_le_bytes().repeat(BLOCKS * BLOCK / 8), 0).unwrap();
        device.flush().unwrap();
        for _ in 0..3 {
            device.collect_garbage(|_, _| ()).unwrap();
        }
        let forgotten = device.forget_missing_clones().unwrap();
        device.collect_garbage(|_, _| ()).unwrap();
        (
            forgotten.len(),
            store.list("segments").unwrap().len() + store.list("flushes").unwrap().len(),
        )
    };
    fill(7);
    family.clone(0, "second".to_owned());
    let (forgotten, with_clone) = fill(8);
    family.copies[0].image = vec![8; BLOCKS];
    family.check();
    assert_eq!(forgotten, 0);
    std::fs::remove_dir_all(folder.path().join("second")).unwrap();
    let (forgotten, without) = fill(9);
    assert_eq!(forgotten, 1);
    assert!(without < with_clone, "{without} {with_clone}");
    assert!(verify(&store, |_, _| ()).unwrap().findings.is_empty());
}

#[test]
fn a_clone_replaces_nothing_and_needs_a_state_that_is_kept() {
    let folder = scratch();
    let family = Family { folder: folder.path(), copies: Vec::new() };
    let (first, second) = (family.store("first"), family.store("second"));
    for store in [&first, &second] {
        ObjectDevice::create(&**store, 1 << 20, NOTHING, 0).unwrap();
    }
    let from = |state: Option<&StateName>, to: &Arc<dyn Store>| {
        clone(
            Beside { store: &*first, way: "../first" },
            Beside { store: &**to, way: "../x" },
            state,
        )
    };
    let error = from(None, &second).unwrap_err();
    assert!(matches!(error, ObjectsError::Exists { .. }), "{error}");
    let third = family.store("third");
    let error = from(Some(&StateName::Number(99)), &third).unwrap_err();
    assert!(matches!(error, ObjectsError::NoSuchState { .. }), "{error}");
    assert!(info(&*first).unwrap().clones.is_empty());
}

#[test]
fn a_clone_needs_nothing_that_only_earlier_states_needed() {
    let folder = scratch();
    let family = Family { folder: folder.path(), copies: Vec::new() };
    let (first, second) = (family.store("first"), family.store("second"));
    let all = "all=1h".parse().unwrap();
    ObjectDevice::create(&*first, (BLOCK * BLOCKS) as u64, all, 0).unwrap();
    let device = ObjectDevice::open_elsewhere(Arc::clone(&first), &options()).unwrap();
    for value in 1..4 {
        device.write_at(&vec![value; BLOCK * BLOCKS], 0).unwrap();
        // The list of objects has those that an earlier state needs.
        device.collect_garbage(|_, _| ()).unwrap();
    }
    let (origin, there) =
        (Beside { store: &*first, way: "../first" }, Beside { store: &*second, way: "../second" });
    clone(origin, there, None).unwrap();
    device.set_policy(NOTHING, 0).unwrap();
    for _ in 0..3 {
        device.collect_garbage(|_, _| ()).unwrap();
    }
    assert_sound(&first);
    assert_sound(&second);
}

#[test]
fn a_clone_outlives_a_manifest_of_its_origin_without_a_copy() {
    let store = Arc::new(MemoryStore::default());
    let there = support::Beside { store: Arc::clone(&store), place: "clone".to_owned() };
    let there: Arc<dyn Store> = Arc::new(there);
    ObjectDevice::create(&*store, (BLOCK * BLOCKS) as u64, NOTHING, 0).unwrap();
    let origin: Arc<dyn Store> = Arc::clone(&store) as _;
    let device = ObjectDevice::open_elsewhere(Arc::clone(&origin), &options()).unwrap();
    device.write_at(&vec![1; BLOCK * BLOCKS], 0).unwrap();
    device.flush().unwrap();
    drop(device);
    // As if the last copy could not be made.
    let names = store.names();
    store.delete(names.iter().rfind(|it| it.starts_with("copies/")).unwrap()).unwrap();
    clone(
        Beside { store: &*origin, way: "../main" },
        Beside { store: &*there, way: "../clone" },
        None,
    )
    .unwrap();
    store.delete("manifest").unwrap();
    rebuild(&*origin).unwrap();
    let device = ObjectDevice::open_elsewhere(origin, &options()).unwrap();
    for _ in 0..3 {
        device.collect_garbage(|_, _| ()).unwrap();
    }
    assert_sound(&there);
}
