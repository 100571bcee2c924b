//! Logs of the kernel are replayed as the kernel replays them: power cuts after fsyncs, recovered
//! by either, and compared.

mod hostile;
mod random;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder::OpenOptions;
use larder::device::{Device, FileDevice};
use larder_testkit::{
    Checksum, Feature, ImageSpec, KernelImage, Manifest, Profile, SpaceCache, command, oracle,
};

const READING: &str = "ro,noatime,subvolid=5";

/// The findings of our own checker.
fn findings(image: &KernelImage) -> Vec<(larder_check::Kind, u64)> {
    let open = |path| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, larder::device::Access::ReadOnly).unwrap())
    };
    let devices = image.devices().iter().map(open).collect();
    let volume =
        larder_volume::Volume::open(devices, &larder_volume::OpenOptions::default()).unwrap();
    let report =
        larder_check::check(&volume, &larder_check::Options::default()).expect("nobody stops it");
    report.kinds.iter().map(|found| (found.kind, found.count)).collect()
}

/// Whether the superblock leads to logs.
fn has_log(image: &KernelImage) -> bool {
    let superblock = oracle::dump_super(&image.devices()[0]).unwrap();
    let line = superblock.lines().find(|line| line.starts_with("log_root\t")).unwrap();
    !line.trim_end().ends_with("\t0")
}

/// Recovers a crashed image with either, and compares everything. If a log contradicts itself, as
/// the kernel's may about the size of a truncated file, both leave the same state.
#[track_caller]
fn recover(crashed: &KernelImage, what: &str) {
    let other = crashed.duplicate();
    drop(other.mount(""));
    let by_kernel = Manifest::of_tree(other.mount(READING).path());
    let fs = OpenOptions::new()
        .write(true)
        .open(crashed.devices())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let by_larder = support::manifest(&fs);
    drop(fs);
    let (expected, seen) = alike(by_kernel, by_larder);
    larder_testkit::assert_same(&seen, &expected);
    assert!(!has_log(crashed), "{what}");
    oracle::check(crashed.devices(), true).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = findings(crashed);
    assert!(found.is_empty() || found == findings(&other), "{what}: {found:?}");
    let mount = crashed.mount(READING);
    let (expected, seen) = alike(expected, Manifest::of_tree(mount.path()));
    larder_testkit::assert_same(&seen, &expected);
}

/// Hides the kernel's changes of times during replay: it stamps an inode that loses a name, and an
/// inode that it had in memory before replay gets its old times back with the next change of a
/// name.
fn alike(mut kernel: Manifest, larder: Manifest) -> (Manifest, Manifest) {
    for (path, entry) in &mut kernel.entries {
        let Some(other) = larder.entries.get(path) else { continue };
        if entry.ctime != other.ctime {
            (entry.ctime, entry.mtime) = (other.ctime, other.mtime);
        }
    }
    (kernel, larder)
}

fn folder_of(root: &Path, scenario: &scenarios::Scenario) -> PathBuf {
    root.join("scenarios").join(scenario.name)
}

#[test]
fn every_scenario_alone() {
    let image = KernelImage::empty(&ImageSpec::new("scenarios"));
    let mount = image.mount("");
    for scenario in scenarios::ALL {
        let folder = folder_of(mount.path(), scenario);
        std::fs::create_dir_all(&folder).unwrap();
        (scenario.before)(&folder).unwrap();
    }
    drop(mount);
    let mut logged = 0;
    for scenario in scenarios::ALL {
        println!("{}", scenario.name);
        let crashed = image.cut_power(|root| (scenario.work)(&folder_of(root, scenario)).unwrap());
        logged += usize::from(has_log(&crashed));
        recover(&crashed, scenario.name);
    }
    println!("{logged} of {} left a log", scenarios::ALL.len());
    assert!(logged * 4 > scenarios::ALL.len() * 3, "{logged}");
}

/// All scenarios in one log, on images of different shapes.
#[test]
fn all_scenarios_together() {
    let shapes = [
        ImageSpec::new("small-nodes").node_size(4096).without(Feature::NoHoles),
        ImageSpec::new("zstd").mount_option("compress-force=zstd"),
        ImageSpec::new("lzo").mount_option("compress-force=lzo").checksum(Checksum::Sha256),
        ImageSpec::new("mixed").mixed().node_size(4096),
        ImageSpec::new("in-place").mount_option("nodatacow"),
        ImageSpec::new("raid1")
            .devices(&[512 << 20; 2])
            .profiles(Profile::Raid1, Profile::Raid1)
            .space_cache(SpaceCache::Files),
    ];
    for spec in shapes {
        println!("{}", spec.name());
        let image = KernelImage::empty(&spec);
        let mount = image.mount(&spec.filling_options());
        let mut folders = vec![mount.path().to_owned()];
        for name in ["one", "two"] {
            command::run(
                "btrfs",
                ["subvolume".as_ref(), "create".as_ref(), mount.path().join(name).as_os_str()],
            )
            .unwrap();
            folders.push(mount.path().join(name));
        }
        for (folder, scenario) in folders
            .iter()
            .flat_map(|folder| scenarios::ALL.iter().map(move |scenario| (folder, scenario)))
        {
            let folder = folder_of(folder, scenario);
            std::fs::create_dir_all(&folder).unwrap();
            (scenario.before)(&folder).unwrap();
        }
        let (from, to) = (mount.path().join("one"), mount.path().join("of-one"));
        command::run(
            "btrfs",
            ["subvolume".as_ref(), "snapshot".as_ref(), from.as_os_str(), to.as_os_str()],
        )
        .unwrap();
        drop(mount);
        let crashed = image.cut_power(|root| {
            for (number, scenario) in scenarios::ALL.iter().enumerate() {
                let folder = root.join(["", "one", "two", "of-one"][number % 4]);
                (scenario.work)(&folder_of(&folder, scenario)).unwrap();
            }
        });
        recover(&crashed, spec.name());
    }
}

fn random_rounds(seeds: impl Iterator<Item = u64>) {
    let specs = [
        ImageSpec::new("default"),
        ImageSpec::new("small-nodes").node_size(4096).without(Feature::NoHoles),
        ImageSpec::new("zstd").mount_option("compress-force=zstd"),
    ];
    let mut logged = 0;
    let mut count = 0;
    for seed in seeds {
        println!("seed {seed}");
        let spec = &specs[seed as usize % specs.len()];
        let image = KernelImage::empty(spec);
        let mount = image.mount(&spec.filling_options());
        random::Player::new(mount.path(), seed).play(300);
        drop(mount);
        let crashed = image.cut_power(|root| {
            let mut player = random::Player::new(root, seed + 1_000_000);
            for _ in 0..12 {
                player.play(8);
                player.sync();
            }
            player.play(10);
        });
        logged += usize::from(has_log(&crashed));
        count += 1;
        recover(&crashed, &format!("{} with seed {seed}", spec.name()));
    }
    println!("{logged} of {count} left a log");
    assert!(logged * 4 > count, "{logged} of {count}");
}

#[test]
fn random_work() {
    let first = larder_testkit::seed(1);
    random_rounds(first..first + 14 * larder_testkit::effort());
}
