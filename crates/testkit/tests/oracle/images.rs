//! The images match their specs, and btrfs-progs finds them sound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::matrix::{large, matrix};
use larder_testkit::{
    Checkable, Content, Event, ImageSpec, KernelImage, KernelMount, Manifest, Profile, Quota,
    Scratch, assert_same, damage, oracle,
};

fn dump(image: &KernelImage) -> String {
    oracle::dump_tree(image.devices(), &[]).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn assert_holds(dump: &str, wanted: &[&str]) {
    for text in wanted {
        assert!(dump.contains(text), "the image has no {text:?}");
    }
}

#[track_caller]
fn assert_sound(image: &KernelImage) {
    let data = match image.spec().checkable() {
        Checkable::Nothing => return,
        Checkable::Metadata => false,
        Checkable::All => true,
    };
    oracle::check(image.devices(), data)
        .unwrap_or_else(|error| panic!("{}: {error}", image.spec().name()));
}

#[test]
fn every_image_of_the_matrix_is_built_read_and_sound() {
    for case in matrix() {
        let image = KernelImage::build(&case.spec, &case.content);
        assert!(image.manifest().entries.len() > 1000, "{}", case.spec.name());
        assert_sound(&image);
    }
}

#[test]
fn names_of_matrix_images_are_unique() {
    let cases = [matrix(), large()].concat();
    let names: std::collections::BTreeSet<_> =
        cases.iter().map(|case| case.spec.name().to_owned()).collect();
    assert_eq!(names.len(), cases.len());
}

#[test]
fn a_large_directory_and_a_file_of_many_extents() {
    let cases = large();
    let image = KernelImage::build(&cases[0].spec, &cases[0].content);
    let manifest = image.manifest();
    let entries = manifest.entries.keys().filter(|path| path.starts_with(b"many/entries/"));
    assert_eq!(entries.count(), 100_000 + 4 * 200);
    let dump = oracle::dump_tree(image.devices(), &["-t", "5"]).expect("a dump");
    let inode = manifest.entries[&b"many/extents"[..]].inode;
    let key = format!("({inode} EXTENT_DATA ");
    assert!(dump.lines().filter(|line| line.contains(&key)).count() >= 20_000);
    assert_sound(&image);
}

#[test]
fn small_content_has_every_kind_of_item() {
    let image = KernelImage::build(&ImageSpec::new("items"), &Content::new(3));
    let dump = dump(&image);
    assert_holds(
        &dump,
        &[
            "INODE_EXTREF",
            "XATTR_ITEM",
            "EXTENT_CSUM",
            "UUID_KEY_SUBVOL",
            "UUID_KEY_RECEIVED_SUBVOL",
            "ROOT_BACKREF",
            "inline extent data",
            "extent data disk byte",
            "prealloc data disk byte",
            "shared data backref",
            "NODATASUM",
            "IMMUTABLE",
            "APPEND",
            "BLKDEV",
            "FIFO",
            "SOCK",
        ],
    );
    let deep = KernelImage::build(&ImageSpec::new("deep").node_size(4096), &Content::new(3));
    assert_holds(
        &oracle::dump_tree(deep.devices(), &[]).expect("a dump"),
        &["shared block backref"],
    );
    // All names of one hash are in one item.
    assert!(dump.matches("name: same-hash-").count() >= 24);
}

#[test]
fn events_leave_their_traces() {
    let two = [256 << 20; 2];
    let build = |spec: ImageSpec| dump(&KernelImage::build(&spec, &Content::new(4)));
    let shared = build(ImageSpec::new("balanced").devices(&[512 << 20]).then(Event::Balance));
    assert_holds(&shared, &["shared data backref"]);
    let removed = ImageSpec::new("removed").devices(&two).profiles(Profile::Single, Profile::Dup);
    let removed = build(removed.then(Event::RemoveFirstDevice));
    assert!(removed.contains("(DEV_ITEMS DEV_ITEM 2)") && !removed.contains("DEV_ITEM 1)"));
    let replaced = build(ImageSpec::new("replaced").then(Event::ReplaceFirstDevice));
    assert_holds(&replaced, &["DEV_REPLACE"]);
    let missed = ImageSpec::new("missed").devices(&two).profiles(Profile::Raid1, Profile::Raid1);
    let missed = KernelImage::build(&missed.then(Event::MissLastDevice), &Content::new(4));
    let generation = |device: &PathBuf| -> u64 {
        let dump = oracle::dump_super(device).expect("a superblock");
        field(&dump, "generation").parse().expect("a number")
    };
    assert!(generation(&missed.devices()[0]) > generation(&missed.devices()[1]));
    assert!(missed.manifest().entries.contains_key(&b"while-missing/data/zeros"[..]));
    let scrubbed = oracle::scrub(&missed.mount("")).expect("everything can be corrected");
    assert!(scrubbed.contains("Corrected:"), "{scrubbed}");
    let quota = build(ImageSpec::new("quota").quota(Quota::Full));
    assert_holds(&quota, &["QGROUP_STATUS", "QGROUP_RELATION", "QGROUP_LIMIT 1/1"]);
}

#[test]
fn a_changed_fsid_differs_from_the_metadata_uuid() {
    let spec = ImageSpec::new("fsid").then(Event::ChangeFsid);
    let image = KernelImage::build(&spec, &Content::new(5));
    let dump = oracle::dump_super(&image.devices()[0]).expect("a superblock");
    assert_ne!(field(&dump, "fsid"), field(&dump, "metadata_uuid"));
}

#[test]
fn a_power_cut_leaves_a_log_tree_and_orphans() {
    let spec = ImageSpec::new("power-cut").power_cut();
    let image = KernelImage::build(&spec, &Content::new(6));
    let superblock = oracle::dump_super(&image.devices()[0]).expect("a superblock");
    assert_ne!(field(&superblock, "log_root"), "0");
    assert_holds(&dump(&image), &["ORPHAN_ITEM", "TREE_LOG"]);

    let has = |manifest: &Manifest, name: &str| {
        manifest.entries.contains_key(format!("power-cut/{name}").as_bytes())
    };
    let committed = image.manifest();
    assert!(!has(committed, "new") && has(committed, "removed"));
    assert!(!has(committed, "orphan-1"));
    let recovered = image.recovered_manifest();
    assert!(has(&recovered, "new") && !has(&recovered, "removed"));
    assert!(has(&recovered, "linked-again") && has(&recovered, "empty-and-new"));
    assert_eq!(recovered.entries[&b"power-cut/cut"[..]].size_bytes, 12_345);
}

#[test]
fn one_of_two_mirrors_can_be_missing_scrambled_or_wiped() {
    let spec =
        ImageSpec::new("damaged").devices(&[256 << 20; 2]).profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(7).all_checksummed());
    let healthy = image.manifest();
    let degraded = KernelMount::open(&image.devices()[..1], "ro,noatime,degraded");
    assert_same(healthy, &Manifest::of_tree(degraded.path()));
    drop(degraded);

    let damaged = image.duplicate();
    damage::scramble(&damaged.devices()[1]).expect("the device is scrambled");
    assert_same(healthy, damaged.manifest());
    assert!(oracle::check(damaged.devices(), true).is_err(), "every second copy is wrong");
    let scrubbed = oracle::scrub(&damaged.mount("")).expect("everything can be corrected");
    assert!(scrubbed.contains("Corrected:"), "{scrubbed}");
    assert_sound(&damaged);

    damage::wipe(&damaged.devices()[1]).expect("the device is wiped");
    let error = KernelMount::try_open(damaged.devices(), "ro");
    assert!(error.is_err(), "a file system with a missing device needs `degraded`");
}

#[test]
fn planted_damage_is_found_in_its_place() {
    let image = KernelImage::build(&ImageSpec::new("planted"), &Content::new(8));
    let device: &Path = &image.devices()[0];
    let before = std::fs::read(device).expect("the image is read");
    damage::invert(device, 5..8).expect("inverted");
    damage::overwrite(device, 100, b"jam").expect("overwritten");
    let after = std::fs::read(device).expect("the image is read");
    let changed: Vec<usize> = (0..before.len()).filter(|&n| before[n] != after[n]).collect();
    assert_eq!(changed, [5, 6, 7, 100, 101, 102]);

    damage::zero_superblock(device, 1).expect("zeroed");
    assert_sound(&image);
    damage::zero_superblock(device, 0).expect("zeroed");
    assert!(oracle::check(image.devices(), false).is_err(), "no superblock is left");
}

/// A power cut right after a snapshot leaves the leaves of the source in it, with a file that was
/// deleted while it was open.
#[test]
fn an_open_file_without_a_name_in_a_snapshot_is_not_a_finding() {
    let image = KernelImage::empty(&ImageSpec::new("nameless"));
    let mount = image.mount("");
    let source = mount.path().join("source");
    let btrfs = |command: &str, paths: &[&Path]| {
        let arguments = ["-q", "subvolume", command];
        let status = Command::new("btrfs").args(arguments).args(paths).status();
        assert!(status.is_ok_and(|status| status.success()), "{command}");
    };
    btrfs("create", &[&source]);
    let write = |name: String| fs::write(source.join(name), [1; 300]).expect("a file");
    (0..300).for_each(|number| write(format!("before-{number}")));
    let nameless = fs::File::create(source.join("nameless")).expect("a file");
    fs::remove_file(source.join("nameless")).expect("it goes");
    (0..20).for_each(|number| write(format!("behind-{number}")));
    btrfs("snapshot", &[&source, &mount.path().join("snapshot")]);
    let scratch = Scratch::new();
    let cut = scratch.path().join("cut");
    fs::copy(&image.devices()[0], &cut).expect("a copy");
    drop((nameless, mount));
    let dump = oracle::dump_tree(std::slice::from_ref(&cut), &[]).expect("it is there");
    assert_eq!(dump.matches("ORPHAN_ITEM").count(), 2, "one in each tree");
    oracle::check(&[cut], true).unwrap_or_else(|error| panic!("{error}"));
}

/// The value of a line of `dump-super`, from the first copy.
fn field<'a>(dump: &'a str, name: &str) -> &'a str {
    let mut lines = dump.lines().filter_map(|line| line.split_once(char::is_whitespace));
    lines.find(|(field, _)| *field == name).expect("dump-super has the field").1.trim()
}
