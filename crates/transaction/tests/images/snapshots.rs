//! Snapshots, changes on both sides, and deletions in any order leave exact references: `btrfs
//! check` finds nothing, and the kernel goes on from there.

use larder_testkit::{Content, ImageSpec, KernelImage, oracle};

use crate::relocation::empty_some;
use crate::support::snapshot::{Snapshot, TOP, clear_orphan, take, unlink};
use crate::support::{Files, Random, open, touch};

fn check(image: &KernelImage, what: &str) {
    oracle::check(image.devices(), false).unwrap_or_else(|error| panic!("after {what}: {error}"));
}

/// Random changes to a subvolume and to snapshots of it and of each other, and random deletions.
fn histories(spec: &ImageSpec, seed: u64, rounds: u64) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::build(spec, &Content::new(seed));
    let mut random = Random(seed);
    let mut files = Files::new("larder", seed);
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for round in 0..rounds {
        let manager = open(image.devices());
        for _ in 0..3 {
            files.churn(&manager, random.below(60)).unwrap();
            touch(&manager, TOP, random.below(12), &mut random).unwrap();
            for snapshot in &snapshots {
                touch(&manager, snapshot.id, random.below(8), &mut random).unwrap();
            }
            let source = match random.below(3) {
                0 if !snapshots.is_empty() => {
                    snapshots[random.below(snapshots.len() as u64) as usize].id
                }
                _ => TOP,
            };
            snapshots.push(take(&manager, source, &mut random));
            // Changes of the source before the commit that takes the snapshot.
            touch(&manager, TOP, random.below(6), &mut random).unwrap();
            if random.below(2) == 0 {
                empty_some(&manager, &mut random);
            }
            manager.commit().unwrap();
            if snapshots.len() > 3 {
                let index = random.below(snapshots.len() as u64) as usize;
                let dead = snapshots.swap_remove(index);
                unlink(&manager, &dead);
                // In small steps, with commits between some.
                while !manager.drop_tree(dead.id, 5).unwrap() {
                    match random.below(8) {
                        0 | 1 => drop(manager.commit().unwrap()),
                        2 => empty_some(&manager, &mut random),
                        _ => {}
                    }
                }
                clear_orphan(&manager, &dead);
            }
            manager.commit().unwrap();
        }
        drop(manager);
        check(&image, &format!("round {round}"));
    }
    let mount = image.mount("commit=1");
    oracle::scrub(&mount).unwrap();
    for snapshot in &snapshots {
        // The kernel reads all of each, and deletes some.
        let path = mount.path().join(&snapshot.name);
        larder_testkit::Manifest::of_tree(&path);
        if random.below(2) == 0 {
            let delete = ["subvolume".as_ref(), "delete".as_ref(), path.as_os_str()];
            larder_testkit::command::run("btrfs", delete).unwrap();
        }
    }
    larder_testkit::command::run(
        "btrfs",
        ["subvolume".as_ref(), "sync".as_ref(), mount.path().as_os_str()],
    )
    .unwrap();
    drop(mount);
    check(&image, "the kernel's deletions");
}

#[test]
fn references_stay_exact() {
    histories(&ImageSpec::new("default"), 11, 5);
}

#[test]
fn references_stay_exact_in_deep_trees() {
    histories(&ImageSpec::new("nodes-4k").node_size(4096), 12, 6);
}

#[test]
fn references_stay_exact_without_skinny_metadata() {
    let spec = ImageSpec::new("no-skinny").without(larder_testkit::Feature::SkinnyMetadata);
    histories(&spec.node_size(4096), 13, 3);
}

#[test]
fn a_snapshot_that_changes_before_its_commit_is_refused() {
    let image = KernelImage::build(&ImageSpec::new("default"), &Content::new(14));
    let manager = open(image.devices());
    let mut random = Random(14);
    let snapshot = take(&manager, TOP, &mut random);
    touch(&manager, snapshot.id, 1, &mut random).unwrap();
    assert!(manager.commit().is_err());
    assert!(manager.aborted().is_some());
    drop(manager);
    check(&image, "the abort");
}
