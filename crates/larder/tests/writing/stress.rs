//! Sixteen threads at once that do everything, for a while.
//!
//! A minute, times `LARDER_EFFORT`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder::{OpenOptions, SnapshotKind};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Scale, assert_same};

use super::model::Player;
use super::view::by_kernel;
use super::{check, storm, support, view};

const THREADS: u64 = 16;

/// Half of the threads have a folder and a model each, the others meet in a few folders; snapshots
/// come and go.
#[test]
fn sixteen_threads_do_everything() {
    // With room for what accumulates in a long run.
    let spec = ImageSpec::new("stress").devices(&[8 << 30]);
    let image = KernelImage::build(&spec, &Content::new(71).scale(Scale::Small));
    let options = OpenOptions::new().write(true).commit_interval(Some(Duration::from_millis(200)));
    // Of the commits of snapshots, while all others go on.
    let options = options.check_every(8);
    let fs = options.open(image.devices()).unwrap();
    let root = fs.subvolume("/").unwrap();
    for folder in ["a", "a/b", "c"] {
        root.create_directory(folder, 0o755).unwrap();
    }
    let seed = larder_testkit::seed(700);
    let mut players: Vec<Player> = (0..THREADS / 2)
        .map(|number| {
            let folder = format!("thread-{number}");
            root.create_directory(&folder, 0o755).unwrap();
            Player::new(&folder, seed + number)
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(30 * larder_testkit::effort());
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
                let mut seed = seed + number;
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
