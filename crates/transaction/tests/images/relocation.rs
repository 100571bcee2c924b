//! Block groups that are emptied: every file has the content that it had, what was shared stays
//! shared, both checkers find nothing, and the kernel goes on from there. So it is after a power
//! cut at any point.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_format::Logical;
use larder_power_cuts::load;
use larder_test_devices::Recording;
use larder_testkit::command::run;
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, KernelMount, Manifest, oracle};
use larder_transaction::space::{GroupState, SpaceKind};
use larder_transaction::{Emptied, Error, TransactionManager};

use crate::cuts::after_power_cuts;
use crate::devices::{Devices, while_in_use};
use crate::support::{Files, Random, open, open_devices};

/// Empties a random group, if it still is there.
pub(crate) fn empty_some(manager: &TransactionManager, random: &mut Random) {
    let groups = manager.space().groups();
    let group = &groups[random.below(groups.len() as u64) as usize];
    empty(manager, group.start());
}

fn empty(manager: &TransactionManager, start: Logical) -> Option<Emptied> {
    manager.empty_group(start, &mut |_| Ok(())).unwrap()
}

/// Empties every group that there is now. Returns how many were removed.
fn empty_all(manager: &TransactionManager) -> usize {
    let groups = manager.space().groups();
    let is_removed = |start| empty(manager, start).is_some_and(|emptied| emptied.is_removed);
    groups.iter().filter(|group| is_removed(group.start())).count()
}

/// Bytes that extents use, of data and of metadata.
fn used(manager: &TransactionManager) -> [u64; 2] {
    [SpaceKind::Data, SpaceKind::Metadata].map(|kind| manager.space().usage(kind).used)
}

/// Everything moves, and takes as much space as before.
fn everything_moves(image: &KernelImage, rounds: usize) {
    let before = Manifest::of_tree(image.mount("subvolid=5,noatime").path());
    let manager = open(image.devices());
    let used_before = used(&manager);
    for _ in 0..rounds {
        let groups = manager.space().groups();
        let starts: Vec<_> = groups.iter().map(|group| group.start()).collect();
        assert_eq!(empty_all(&manager), starts.len());
        manager.commit().unwrap();
        let left = manager.space().groups();
        assert!(left.iter().all(|group| !starts.contains(&group.start())), "{left:?}");
    }
    let now = used(&manager);
    let tolerance = 64 * u64::from(manager.volume().nodesize());
    let is_more = |kind: usize| now[kind] > used_before[kind] + tolerance;
    assert!(!is_more(0) && !is_more(1), "{now:?} were {used_before:?}");
    drop(manager);
    oracle::check(image.devices(), true).unwrap();
    let mount = image.mount("subvolid=5,noatime");
    assert_eq!(Manifest::of_tree(mount.path()), before);
    oracle::scrub(&mount).unwrap();
    // The kernel moves it back, and deletes snapshots of it.
    kernel(&mount, &["balance", "start", "--full-balance"]);
    drop(mount);
    oracle::check(image.devices(), true).unwrap();
}

fn kernel(mount: &KernelMount, args: &[&str]) {
    let args = args.iter().map(AsRef::as_ref).chain([mount.path().as_os_str()]);
    run("btrfs", args).unwrap();
}

#[test]
fn everything_moves_elsewhere() {
    for name in ["default", "mixed", "no-skinny"] {
        let spec = ImageSpec::new(name).devices(&[3000 << 20]);
        let spec = match name {
            "mixed" => spec.mixed().node_size(4096),
            "no-skinny" => spec.without(Feature::SkinnyMetadata),
            _ => spec,
        };
        let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
        everything_moves(&image, 2);
    }
}

/// A hundred snapshots, each of which has something of its own.
#[test]
fn what_a_hundred_snapshots_share_moves_once() {
    let spec = ImageSpec::new("snapshots").devices(&[3000 << 20]);
    let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
    let mount = image.mount("subvolid=5,noatime");
    for number in 0..100 {
        let snapshot = mount.path().join(format!("of-many{number}"));
        let (args, source) = (["subvolume", "snapshot"], mount.path());
        let args = args.iter().map(AsRef::as_ref);
        run("btrfs", args.chain([source.as_os_str(), snapshot.as_os_str()])).unwrap();
        std::fs::write(snapshot.join(format!("own{number}")), vec![number; 5000]).unwrap();
    }
    drop(mount);
    everything_moves(&image, 1);
}

#[test]
fn groups_are_emptied_while_files_change() {
    let devices = Devices::new(&ImageSpec::new("one-device").devices(&[3000 << 20]));
    let mut files = Files::new("larder", 7);
    let manager = open(&devices.files);
    for round in 0..4 {
        while_in_use(&manager, &mut files, || {
            empty_all(&manager);
        });
        manager.commit().unwrap();
        devices.check_copy(&format!("round {round}"));
    }
    drop(manager);
}

#[test]
fn a_group_that_finds_no_room_stays_in_use() {
    let spec = ImageSpec::new("small").devices(&[260 << 20]);
    let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
    let mount = image.mount("noatime");
    let filler = std::fs::write(mount.path().join("filler"), vec![7; 300 << 20]);
    assert!(filler.is_err(), "the device is full");
    drop(mount);
    let manager = open(image.devices());
    let mut refused = 0;
    for group in manager.space().groups() {
        match manager.empty_group(group.start(), &mut |_| Ok(())) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => {
                refused += 1;
                assert_eq!(group.state(), GroupState::Open);
            }
            Err(error) => panic!("{error}"),
        }
        assert!(manager.aborted().is_none());
    }
    assert!(refused > 0);
    Files::new("larder", 7).churn(&manager, 40).unwrap();
    manager.commit().unwrap();
    drop(manager);
    oracle::check(image.devices(), true).unwrap();
}

#[test]
fn a_reader_keeps_what_has_moved() {
    let image = KernelImage::build(
        &ImageSpec::new("default").devices(&[3000 << 20]),
        &Content::new(larder_testkit::seed(7)),
    );
    let manager = open(image.devices());
    let kept = manager.keep_trees();
    let groups = manager.space().groups();
    let data = groups.iter().find(|group| group.holds(SpaceKind::Data) && group.used() > 0);
    let data = data.expect("the image has data");
    assert!(!empty(&manager, data.start()).unwrap().is_removed, "a reader needs it");
    assert_eq!((data.state(), data.used()), (GroupState::Leaving, 0));
    assert!(kept.is_kept());
    drop(kept);
    Files::new("larder", 7).churn(&manager, 4).unwrap();
    manager.commit().unwrap();
    assert!(manager.space().group_at(data.start()).is_none());
    drop(manager);
    oracle::check(image.devices(), true).unwrap();
}

#[test]
fn power_cuts_while_groups_are_emptied() {
    let seed = larder_testkit::seed(3);
    let spec = ImageSpec::new("two-devices").devices(&[600 << 20, 600 << 20]);
    let image = KernelImage::build(&spec, &Content::new(seed));
    let base: Vec<MemoryDevice> = image.devices().iter().map(|file| load(file)).collect();
    let recording = Recording::new();
    let attach = |device: &MemoryDevice| Arc::new(recording.attach(device)) as Arc<dyn Device>;
    let manager = open_devices(base.iter().map(attach).collect()).unwrap();
    let mut files = Files::new("larder", seed);
    let mut states = vec![(0, files.sorted())];
    for group in manager.space().groups() {
        files.churn(&manager, 30).unwrap();
        manager.commit().unwrap();
        states.push((recording.position(), files.sorted()));
        empty(&manager, group.start());
    }
    drop(manager);
    let part = states[1].0 + 1..recording.position() + 1;
    after_power_cuts("emptying groups", &recording, &states, part, (seed, 80), |manager| {
        empty_all(manager);
    });
}
