//! Root items contain the size of their trees. The kernel uses it to reserve space, and no checker
//! looks at it. The kernel's own values are a few blocks off at times.

use larder::SnapshotKind;
use larder_testkit::{ImageSpec, KernelImage, oracle};

use super::model::Player;
use super::open;

/// Trees of the superblock's root. Those that the superblock leads to have no items.
const ROOT_TREE: &str = "1";

/// Each root item says how many bytes of blocks its tree has.
#[track_caller]
fn check(image: &KernelImage, nodesize: u64) {
    let roots = oracle::dump_tree(image.devices(), &["-t", ROOT_TREE]).unwrap();
    let mut id = "";
    let mut trees = 0;
    for line in roots.lines() {
        if let Some((_, key)) = line.split_once(" key (").filter(|_| line.contains("item ")) {
            id = key.split(' ').next().unwrap_or_default();
        }
        let Some((_, bytes)) = line.split_once(" bytes_used ") else { continue };
        let dump = oracle::dump_tree(image.devices(), &["-t", id, "--hide-names"]).unwrap();
        let is_block = |line: &&str| line.starts_with("leaf ") || line.starts_with("node ");
        // Each block has a second line, of flags.
        let is_first = |line: &&str| is_block(line) && line.contains(" items ");
        let blocks = dump.lines().filter(is_first).count() as u64;
        assert_eq!(bytes.trim(), (blocks * nodesize).to_string(), "tree {id}: {blocks} blocks");
        trees += 1;
    }
    assert!(trees > 4, "{trees}");
}

#[test]
fn root_items_know_how_large_trees_are() {
    let spec = ImageSpec::new("sizes").node_size(4096);
    let image = KernelImage::empty(&spec);
    check(&image, 4096);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut player = Player::new("played", 81);
    root.create_directory("played", 0o755).unwrap();
    for round in 0..4 {
        player.play(&root, 200);
        let snapshot = root.snapshot(format!("snapshot-{round}"), SnapshotKind::Writable).unwrap();
        snapshot.create("more", 0o644).and_then(|file| file.write_at(&[1; 9000], 0)).unwrap();
        for number in 0..300 {
            root.create(format!("played/{round}-{number}"), 0o644).unwrap();
        }
        fs.sync().unwrap();
        for number in 0..300 {
            root.remove_file(format!("played/{round}-{number}")).unwrap();
        }
        if round > 1 {
            root.delete_subvolume(format!("snapshot-{}", round - 2)).unwrap();
        }
    }
    fs.sync().unwrap();
    drop((root, fs));
    super::check(&image, "changing sizes");
    check(&image, 4096);
}
