//! Names, data and attributes against the model, with snapshots, commits and reopening in between.

use std::sync::Arc;

use larder::device::MemoryDevice;
use larder::{CompressionAlgorithm, OpenOptions, SnapshotKind, WriteCompression};
use larder_format::Profile;
use larder_mkfs::MkfsOptions;
use larder_power_cuts::assert_sound_to_larder;

use super::model::Player;
use super::view::{View, assert_same, by_larder};
use super::{as_dyn, make, open, small_nodes};

const FOLDER: &str = "work";
/// Steps between two full comparisons.
const STEPS: usize = 80;
/// Snapshots that are kept at the same time.
const MOST_SNAPSHOTS: usize = 3;

/// Plays rounds, each of steps, a snapshot and a commit, and reopens the file system now and then.
/// Each round ends with a full comparison and a run of our checker.
fn play(devices: &[Arc<MemoryDevice>], options: &OpenOptions, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let mut player = Player::new(FOLDER, seed);
    let mut snapshots: Vec<(String, View)> = Vec::new();
    let mut fs = open(as_dyn(devices), options.clone());
    fs.subvolume("/").unwrap().create_directory(FOLDER, 0o755).unwrap();
    for round in 0..6 * larder_testkit::effort() {
        let root = fs.subvolume("/").unwrap();
        player.play(&root, STEPS);
        let view = player.model.view();
        assert_same(&by_larder(&root, FOLDER).unwrap(), &view, "larder, before the commit");
        let name = format!("snapshot-{round}");
        let kinds = [SnapshotKind::ReadOnly, SnapshotKind::Writable];
        root.snapshot(&name, kinds[round as usize % 2]).unwrap();
        snapshots.push((name, view.clone()));
        if snapshots.len() > MOST_SNAPSHOTS {
            root.delete_subvolume(&snapshots.remove(0).0).unwrap();
        }
        fs.sync().unwrap();
        let what = format!("round {round} of seed {seed}");
        assert_sound_to_larder(devices.iter().map(|device| &**device), &what);
        if round % 2 == 1 {
            drop((root, fs));
            fs = open(as_dyn(devices), options.clone());
        }
        let root = fs.subvolume("/").unwrap();
        assert_same(&by_larder(&root, FOLDER).unwrap(), &view, "larder, after the commit");
        for (name, view) in &snapshots {
            let snapshot = fs.subvolume(name).unwrap();
            assert_same(&by_larder(&snapshot, FOLDER).unwrap(), view, name);
        }
    }
}

#[test]
fn by_default() {
    play(&make(1, &MkfsOptions::default()), &OpenOptions::new(), 1);
}

#[test]
fn on_small_nodes_with_items_for_holes() {
    play(&make(1, &small_nodes()), &OpenOptions::new(), 2);
}

#[test]
fn compressed() {
    let zstd = WriteCompression { compression: CompressionAlgorithm::Zstd.into(), force: true };
    let options = OpenOptions::new().compression(Some(zstd));
    play(&make(1, &MkfsOptions::default()), &options, 3);
}

#[test]
fn with_little_memory_for_dirty_data() {
    let options = OpenOptions::new().dirty_bytes(128 << 10).cache_bytes(1 << 20);
    play(&make(1, &small_nodes()), &options, 4);
}

#[test]
fn with_copies_on_two_devices_and_discards() {
    let profiles = Some(Profile::Raid1);
    let options = MkfsOptions {
        data_profile: profiles,
        metadata_profile: profiles,
        ..MkfsOptions::default()
    };
    play(&make(2, &options), &OpenOptions::new().discard(true), 5);
}

#[test]
fn with_mixed_groups() {
    let options = MkfsOptions { mixed: true, ..MkfsOptions::default() };
    play(&make(1, &options), &OpenOptions::new(), 6);
}
