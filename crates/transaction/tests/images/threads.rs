//! Many threads change one tree, while others commit, take snapshots and delete them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_testkit::KernelMount;
use larder_transaction::space::{Priority, SpaceKind};

use crate::support::snapshot::{TOP, clear_orphan, take, unlink};
use crate::support::{Blank, Directory, Files, Random, names, open, write_data};

const WRITERS: u64 = 4;
const PREFIXES: [&str; WRITERS as usize] = ["bread", "butter", "salt", "honey"];

/// Files with data, created and removed.
fn churn_data(
    manager: &larder_transaction::TransactionManager,
    directory: &Directory,
    random: &mut Random,
) {
    let mut mine = Vec::new();
    for number in 0..60 {
        let len_bytes = (1 + random.below(20)) * 4096;
        let data = manager.reserve(SpaceKind::Data, len_bytes, Priority::Normal).unwrap();
        let handle = manager.start(16, Priority::Normal).unwrap();
        let name = format!("data-{number}-{:x}", random.next());
        let inode = directory.create(&handle, &name).unwrap();
        write_data(manager, &handle, inode, len_bytes).unwrap();
        handle.end().unwrap();
        drop(data);
        mine.push(name);
        if mine.len() > 5 {
            let handle = manager.start(16, Priority::Deleting).unwrap();
            let name = mine.swap_remove(random.below(5) as usize);
            directory.remove(&handle, &name).unwrap();
            handle.end().unwrap();
        }
    }
}

fn storm(image: &Blank, seed: u64) -> Vec<String> {
    let seed = larder_testkit::seed(seed);
    let manager = open(&image.devices);
    let directory = Directory::open(&manager, TOP);
    let is_done = AtomicBool::new(false);
    let mut expected = Vec::new();
    std::thread::scope(|scope| {
        let (manager, directory) = (&manager, &directory);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut random = Random(seed * 100 + number);
                    let prefix = PREFIXES[number as usize];
                    let mut files = Files::new(prefix, random.next());
                    for _ in 0..1500 {
                        files.step(manager, directory).unwrap();
                    }
                    churn_data(manager, directory, &mut random);
                    files.names
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                manager.commit().unwrap();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut random = Random(seed);
            let mut snapshots = Vec::new();
            while !is_done.load(Relaxed) {
                snapshots.push(take(manager, TOP, &mut random));
                if snapshots.len() > 2 {
                    let dead = snapshots.remove(0);
                    manager.commit().unwrap();
                    unlink(manager, &dead);
                    while !manager.drop_tree(dead.id, 20).unwrap() {}
                    clear_orphan(manager, &dead);
                }
            }
        });
        let join = |writer: std::thread::ScopedJoinHandle<'_, Vec<String>>| writer.join();
        let results: Vec<_> = writers.into_iter().map(join).collect();
        is_done.store(true, Relaxed);
        expected = results.into_iter().flat_map(Result::unwrap).collect();
    });
    manager.commit().unwrap();
    for prefix in PREFIXES {
        let found = names(&manager, prefix).unwrap();
        assert_eq!(found.len(), expected.iter().filter(|name| name.starts_with(prefix)).count());
    }
    expected
}

#[test]
fn a_storm_on_one_tree() {
    // Schedules differ from run to run: several storms find more than one.
    for (seed, arguments) in (41..57).zip(["", "-n 4096"].into_iter().cycle()) {
        let image = Blank::new(arguments, &[512 << 20]);
        let expected = storm(&image, seed);
        image.check(arguments);
        let mount = KernelMount::open(&image.devices, "");
        for name in expected {
            assert!(mount.path().join(&name).exists(), "{name}");
        }
    }
}
