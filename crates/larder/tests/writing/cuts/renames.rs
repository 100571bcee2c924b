//! Files that are renamed and exchanged all the time: each exists once, whenever the power goes.

use std::collections::BTreeMap;
use std::time::Duration;

use larder::{Filesystem, OpenOptions, RenameMode, Subvolume};
use larder_test_devices::Recording;
use larder_testkit::ImageSpec;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Work, explore};

const FOLDERS: [&str; 5] = ["storm", "storm/a", "storm/a/b", "storm/c", "storm/d"];
const THREADS: usize = 4;
/// Files of each thread, spread over all threads' folders.
const FILES: usize = 12;
const STEPS: usize = 250;

struct Renames;

impl Work for Renames {
    fn record(fs: &Filesystem, recording: &Recording, seed: u64) -> (Self, usize) {
        let root = fs.subvolume("/").unwrap();
        for folder in FOLDERS {
            root.create_directory(folder, 0o755).unwrap();
        }
        for thread in 0..THREADS {
            for number in 0..FILES {
                let file = root.create(format!("storm/{thread}-{number}"), 0o644).unwrap();
                file.write_at(&content(thread, number), 0).unwrap();
            }
        }
        fs.sync().unwrap();
        let first = recording.position();
        std::thread::scope(|scope| {
            let storms: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let root = &root;
                    scope.spawn(move || storm(root, thread, seed))
                })
                .collect();
            while storms.iter().any(|storm| !storm.is_finished()) {
                fs.sync().unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        (Self, first)
    }

    fn judge(&self, root: &Subvolume, _: usize) {
        let mut names = BTreeMap::new();
        for folder in FOLDERS {
            for entry in root.open_directory(folder).unwrap().entries().unwrap() {
                let entry = entry.unwrap();
                let name = entry.name().to_str().unwrap().to_owned();
                if FOLDERS.iter().all(|folder| !folder.ends_with(&format!("/{name}"))) {
                    let file = entry.open().and_then(larder::Inode::into_file).unwrap();
                    let mut data = vec![0; file.len_bytes() as usize];
                    file.read_at(&mut data, 0).unwrap();
                    assert_eq!(names.insert(data, name.clone()), None, "{folder}/{name} is double");
                }
            }
        }
        // Exchanges may give a file any of the names, but each file must be there.
        for thread in 0..THREADS {
            for number in 0..FILES {
                let name = names.remove(&content(thread, number));
                let is_own = name.is_some_and(|name| name.starts_with(&format!("{thread}-")));
                assert!(is_own, "{thread}-{number} is lost");
            }
        }
        assert!(names.is_empty(), "{:?}", names.values());
    }

    fn folders(&self) -> Vec<String> {
        vec!["storm".into()]
    }
}

fn content(thread: usize, number: usize) -> Vec<u8> {
    let byte = (thread * FILES + number) as u8;
    vec![byte; 100 + usize::from(byte) * 200]
}

/// Moves the files of a thread about, and exchanges them with each other.
fn storm(root: &Subvolume, thread: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed * 100 + thread as u64);
    let mut places = [0; FILES];
    for _ in 0..STEPS {
        let (number, other) = (random.random_range(0..FILES), random.random_range(0..FILES));
        let to = random.random_range(0..FOLDERS.len());
        let path = |place: usize, number: usize| format!("{}/{thread}-{number}", FOLDERS[place]);
        let from = path(places[number], number);
        if random.random_range(0..3) == 0 && number != other {
            root.rename_with(&from, path(places[other], other), RenameMode::Exchange).unwrap();
        } else {
            root.rename(&from, path(to, number)).unwrap();
            places[number] = to;
        }
        // So that other threads have their turn, however few processors there are.
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn each_file_is_there_once() {
    let spec = ImageSpec::new("renames").node_size(4096);
    let options = OpenOptions::new().write(true).commit_interval(None);
    explore::<Renames>(&spec, &options, 11);
}
