//! Random chains of snapshots, sent as increments of each other in both directions, and received
//! both by the kernel's `btrfs receive` and by Larder, into an image and now and then through a
//! mount.
//!
//! `LARDER_EFFORT` multiplies the number of chains; `LARDER_SEED` makes others.
//! Needs root, loop devices and btrfs in the kernel.

use std::collections::BTreeMap;

use larder_filesystem::Filesystem;
use larder_stream::{SendOptions, Version};
use larder_testkit::snapshots::{Random, mutate};
use larder_testkit::{Manifest, assert_same};

use crate::support::{
    EmptyImage, assert_sound, btrfs, delete, kernel_receive, larder_receive, larder_send,
    mounted_receive, open, open_writable, sendable, snapshot, subvolume,
};

/// Snapshots in a chain.
const SNAPSHOTS: usize = 6;
/// Chains, times the effort: each makes 14 streams.
const CHAINS: u64 = 24;

/// Makes a chain of snapshots, `0` to the last, of a subvolume that changes between them.
fn make_chain(image: &EmptyImage, random: &mut Random) -> BTreeMap<String, Manifest> {
    let mut manifests = BTreeMap::new();
    for round in 0..SNAPSHOTS {
        // After a new mount, the numbers of the last removed inodes are used again.
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        if round == 0 {
            btrfs(&[&"-q", &"subvolume", &"create", &work]);
            mutate(&work, random, 120);
        } else {
            let changes = 1 + random.below(60);
            mutate(&work, random, changes);
        }
        let target = mount.path().join(round.to_string());
        snapshot(&work, &target);
        mount.sync();
        manifests.insert(round.to_string(), sendable(&target));
    }
    manifests
}

/// Each snapshot after the one before, and pairs in unusual orders.
fn pairs(random: &mut Random) -> Vec<(Option<usize>, usize)> {
    let mut pairs = vec![(None, 0)];
    pairs.extend((1..SNAPSHOTS).map(|round| (Some(round - 1), round)));
    pairs.extend((0..8).map(|_| (Some(random.below(SNAPSHOTS)), random.below(SNAPSHOTS))));
    pairs
}

#[test]
fn chains_of_increments_are_received_as_they_were_sent() {
    let first = larder_testkit::seed(1);
    for seed in first..first + CHAINS * larder_testkit::effort() {
        let mut random = Random(seed);
        let image = EmptyImage::new();
        let manifests = make_chain(&image, &mut random);
        let filesystem = open(image.device());
        let target = EmptyImage::new();
        let mount = target.mount("noatime");
        let image = EmptyImage::new();
        let receiver = open_writable(image.device());
        let mut names = Vec::new();
        for (step, (parent, child)) in pairs(&mut random).into_iter().enumerate() {
            eprintln!("seed {seed}: {child} after {parent:?}");
            let options = options(&filesystem, parent, step);
            let stream = larder_send(&subvolume(&filesystem, &child.to_string()), &options);
            let folder = mount.path().join(format!("received-{step}"));
            std::fs::create_dir(&folder).expect("made");
            let name = child.to_string();
            larder_receive(&stream, &receiver, &format!("received-{step}"))
                .unwrap_or_else(|error| panic!("{error}"));
            names.push(name.clone());
            let received = kernel_receive(&stream, &folder, &name, target.scratch());
            assert_same(&manifests[&name], &sendable(&received));
            if step.is_multiple_of(4) {
                let folder = mount.path().join(format!("mounted-{step}"));
                std::fs::create_dir(&folder).expect("made");
                mounted_receive(&stream, &folder).unwrap_or_else(|error| panic!("{error}"));
                assert_same(&manifests[&name], &sendable(&folder.join(&name)));
                delete(&folder.join(&name));
            }
            // The kernel would take any of those that were received twice as a parent.
            if step >= SNAPSHOTS {
                delete(&received);
            }
        }
        drop((mount, receiver));
        assert_sound(image.device());
        let mount = image.mount("ro,noatime");
        for (step, name) in names.iter().enumerate() {
            let received = mount.path().join(format!("received-{step}")).join(name);
            assert_same(&manifests[name], &sendable(&received));
        }
    }
}

fn options(filesystem: &Filesystem, parent: Option<usize>, step: usize) -> SendOptions {
    let parent = parent.map(|parent| subvolume(filesystem, &parent.to_string()));
    let version = if step.is_multiple_of(2) { Version::V1 } else { Version::V2 };
    SendOptions { parent, version, compressed_data: step % 4 == 1, ..SendOptions::default() }
}
