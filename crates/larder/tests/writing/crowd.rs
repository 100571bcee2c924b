//! Many threads at once: sixteen that do everything, for a while; four that fill a file system again and again.
//!
//! `LARDER_STRESS_SECONDS=600` and `LARDER_FILLS=20` have it go on longer than it does here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder::{ErrorKind, OpenOptions, SnapshotKind, Subvolume};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Profile, Scale, assert_same};

use super::model::Player;
use super::rounds::from_environment;
use super::view::by_kernel;
use super::{check, open, storm, support, view};

const THREADS: u64 = 16;

/// Half of the threads have a folder and a model each, the others meet in a few folders; snapshots come and go.
#[test]
fn sixteen_threads_do_everything() {
    let image = KernelImage::build(&ImageSpec::new("crowd"), &Content::new(71).scale(Scale::Small));
    let options = OpenOptions::new().write(true).commit_interval(Some(Duration::from_millis(200)));
    let fs = options.open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    for folder in ["a", "a/b", "c"] {
        root.create_directory(folder, 0o755).unwrap();
    }
    let mut players: Vec<Player> = (0..THREADS / 2)
        .map(|number| {
            let folder = format!("thread-{number}");
            root.create_directory(&folder, 0o755).unwrap();
            Player::new(&folder, 700 + number)
        })
        .collect();
    let end =
        Instant::now() + Duration::from_secs(from_environment("LARDER_STRESS_SECONDS", 10) as u64);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (root, is_over) = (&root, &is_over);
        for player in &mut players {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    player.play(root, 20);
                }
            });
        }
        for number in THREADS / 2..THREADS {
            scope.spawn(move || {
                let mut seed = number;
                while !is_over.load(Ordering::Relaxed) {
                    storm(root, seed);
                    seed += THREADS;
                }
            });
        }
        let mut taken = 0;
        while Instant::now() < end {
            let name = format!("busy-{taken}");
            root.snapshot(&name, SnapshotKind::ReadOnly).unwrap();
            if taken >= 2 {
                root.delete_subvolume(format!("busy-{}", taken - 2)).unwrap();
            }
            taken += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "the crowd");
    let mount = image.mount("ro,noatime");
    for (number, player) in players.iter().enumerate() {
        let folder = mount.path().join(format!("thread-{number}"));
        view::assert_same(&by_kernel(&folder), &player.model.view(), "the kernel");
    }
    assert_same(&Manifest::of_tree(mount.path()), &manifest);
}

/// Small and large files from four threads until there is no room, then half of them are deleted.
#[test]
fn a_file_system_is_filled_and_half_emptied_again_and_again() {
    let spec = ImageSpec::new("filled").devices(&[300 << 20]);
    let spec = spec.profiles(Profile::Single, Profile::Single);
    let image = KernelImage::build(&spec, &Content::new(72).scale(Scale::Small));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut kept: [Vec<String>; 4] = std::array::from_fn(|thread| {
        root.create_directory(format!("filler-{thread}"), 0o755).unwrap();
        Vec::new()
    });
    for fill in 0..from_environment("LARDER_FILLS", 2) {
        std::thread::scope(|scope| {
            for (thread, kept) in kept.iter_mut().enumerate() {
                let root = &root;
                scope.spawn(move || {
                    fill_up(root, thread, fill, kept);
                    let mut number = 0;
                    kept.retain(|path| {
                        number += 1;
                        let stays = (number + fill) % 2 == 0;
                        if !stays {
                            root.remove_file(path).unwrap_or_else(|error| panic!("{error}"));
                        }
                        stays
                    });
                });
            }
        });
        fs.sync().unwrap();
    }
    let files: usize = kept.iter().map(Vec::len).sum();
    assert!(files > 20, "{files}");
    let manifest = support::manifest(&fs);
    drop((root, fs));
    check(&image, "filling");
    let mount = image.mount("ro,noatime");
    assert_same(&Manifest::of_tree(mount.path()), &manifest);
}

/// Makes files until there is no room. One that could not be written whole is kept as it is.
fn fill_up(root: &Subvolume, thread: usize, fill: usize, kept: &mut Vec<String>) {
    const LENGTHS: [usize; 4] = [1500, 900, 40_000, 5 << 20];
    for number in 0..100_000_usize {
        let path = format!("filler-{thread}/file-{fill}-{number}");
        let data = vec![number as u8; LENGTHS[(number + thread) % LENGTHS.len()]];
        let file = match root.create(&path, 0o644) {
            Ok(file) => file,
            Err(error) => return expect_no_space(&error),
        };
        kept.push(path);
        if let Err(error) = file.write_at(&data, 0) {
            return expect_no_space(&error);
        }
    }
    panic!("it holds more than its device");
}

fn expect_no_space(error: &larder::Error) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}
