//! A file system that is full, half emptied and full again when the power goes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use larder::{ErrorKind, Filesystem, OpenOptions, Subvolume};
use larder_test_devices::Recording;
use larder_testkit::{ImageSpec, Profile};

use super::{Work, explore};

const THREADS: usize = 4;
const FILLS: usize = 2;
const LENGTHS: [usize; 5] = [900, 1_500_000, 4096, 40_000, 3_000_000];
/// The position of the recording before anything was written.
const NEVER: usize = usize::MAX;

/// By path, for files that could be written whole: the position of the recording when a sync after
/// that had returned, and when its deletion began.
struct Filling {
    files: BTreeMap<String, (usize, usize)>,
}

impl Work for Filling {
    fn record(fs: &Filesystem, recording: &Recording, _: u64) -> (Self, usize) {
        let root = fs.subvolume("/").unwrap();
        for thread in 0..THREADS {
            root.create_directory(format!("filler-{thread}"), 0o755).unwrap();
        }
        fs.sync().unwrap();
        let first = recording.position();
        let files = Mutex::new(BTreeMap::new());
        for fill in 0..FILLS {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (root, files) = (&root, &files);
                    scope.spawn(move || fill_up(root, thread, fill, files));
                }
            });
            fs.sync().unwrap();
            for (path, (synced, leaving)) in files.lock().unwrap().iter_mut() {
                if *synced == NEVER {
                    *synced = recording.position();
                }
                if *leaving == NEVER && path.ends_with(['1', '3', '5', '7', '9']) {
                    *leaving = recording.position();
                    root.remove_file(path).unwrap_or_else(|error| panic!("{path}: {error}"));
                }
            }
            fs.sync().unwrap();
        }
        (Self { files: files.into_inner().unwrap() }, first)
    }

    fn judge(&self, root: &Subvolume, position: usize) {
        for (path, (synced, leaving)) in &self.files {
            let is_kept = *synced <= position && *leaving > position;
            let file = match root.open_file(path) {
                Ok(file) => file,
                Err(error) => {
                    let is_allowed = !is_kept && error.kind() == ErrorKind::NotFound;
                    assert!(is_allowed, "{path}: {error}");
                    continue;
                }
            };
            let expected = content(path);
            let mut data = vec![0; expected.len() + 1];
            let len = file.read_at(&mut data, 0).unwrap();
            if is_kept {
                assert!(data[..len] == expected, "{path}: {len} bytes");
            }
            let is_of_it = |(seen, byte): (&u8, &u8)| seen == byte || *seen == 0;
            assert!(data[..len].iter().zip(&expected).all(is_of_it), "{path}: {len} bytes");
        }
    }

    fn folders(&self) -> Vec<String> {
        (0..THREADS).map(|thread| format!("filler-{thread}")).collect()
    }
}

fn content(path: &str) -> Vec<u8> {
    let number: usize = path.rsplit('-').next().unwrap().parse().unwrap();
    vec![number as u8 | 1; LENGTHS[number % LENGTHS.len()]]
}

fn fill_up(
    root: &Subvolume,
    thread: usize,
    fill: usize,
    files: &Mutex<BTreeMap<String, (usize, usize)>>,
) {
    for number in thread.. {
        let path = format!("filler-{thread}/{fill}-{number}");
        let written = root.create(&path, 0o644).and_then(|file| file.write_at(&content(&path), 0));
        match written {
            Ok(()) => drop(files.lock().unwrap().insert(path, (NEVER, NEVER))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{path}: {error}");
                return;
            }
        }
    }
}

fn options() -> OpenOptions {
    OpenOptions::new().write(true).commit_interval(None)
}

#[test]
fn nearly_full() {
    let spec = ImageSpec::new("nearly-full").devices(&[140 << 20]);
    explore::<Filling>(&spec.profiles(Profile::Single, Profile::Dup), &options(), 21);
}

#[test]
fn nearly_full_with_mixed_groups() {
    let spec = ImageSpec::new("nearly-full-mixed").devices(&[100 << 20]).mixed().node_size(4096);
    explore::<Filling>(&spec, &options().discard(true), 22);
}
