//! Manifests of the same tree are the same, and show differences.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use larder_testkit::manifest::{Body, Difference, Entry, Timestamp};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, assert_same};

fn fields(differences: &[Difference]) -> Vec<&str> {
    differences.iter().map(|difference| difference.field.as_str()).collect()
}

#[test]
fn an_image_reads_the_same_after_a_remount() {
    let image = KernelImage::build(&ImageSpec::new("remount"), &Content::new(1));
    let again = Manifest::of_tree(image.mount("ro,noatime").path());
    assert!(image.manifest().entries.len() > 1000);
    assert_same(image.manifest(), &again);
    assert_same(image.manifest(), image.duplicate().manifest());
}

#[test]
fn the_same_seed_gives_the_same_tree_except_for_its_times() {
    let build = |seed| {
        let image = KernelImage::build(&ImageSpec::new("seed"), &Content::new(seed));
        let mut manifest = image.manifest().clone();
        for entry in manifest.entries.values_mut() {
            let none = Timestamp::default();
            (entry.atime, entry.mtime, entry.ctime, entry.otime) = (none, none, none, none);
        }
        manifest
    };
    let first = build(7);
    assert_same(&first, &build(7));
    assert!(!first.differences(&build(8)).is_empty());
}

#[test]
fn a_change_under_a_mount_is_seen_in_every_field_that_it_touches() {
    let image = KernelImage::build(&ImageSpec::new("changed"), &Content::new(2));
    let before = image.manifest().clone();
    let changed = image.duplicate();
    {
        let mount = changed.mount("noatime");
        let file = OpenOptions::new().write(true).open(mount.path().join("data/text-4096"));
        file.expect("opens").write_all_at(b"jam", 4095).expect("writes");
    }
    let differences = before.differences(changed.manifest());
    assert!(differences.iter().all(|difference| difference.path == b"data/text-4096"));
    let expected = ["size", "allocated bytes", "mtime", "ctime", "content hash", "data ranges"];
    assert_eq!(fields(&differences), expected);
    let shown = differences[0].to_string();
    assert_eq!(shown, "/data/text-4096: size: expected 4096, found 4098");
}

#[test]
fn each_differing_field_is_named() {
    type Change = fn(&mut Entry);
    let changes: [(&str, Change); 13] = [
        ("permissions", |entry| entry.permissions ^= 1),
        ("uid", |entry| entry.uid += 1),
        ("gid", |entry| entry.gid += 1),
        ("nlink", |entry| entry.nlink += 1),
        ("size", |entry| entry.size_bytes += 1),
        ("allocated bytes", |entry| entry.allocated_bytes += 512),
        ("atime", |entry| entry.atime.nanoseconds ^= 1),
        ("mtime", |entry| entry.mtime.seconds += 1),
        ("ctime", |entry| entry.ctime.seconds += 1),
        ("otime", |entry| entry.otime.seconds -= 1),
        ("inode", |entry| entry.inode += 1),
        ("subvolume", |entry| entry.subvolume += 1),
        ("flags", |entry| entry.flags = None),
    ];
    let entry = Entry {
        permissions: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        size_bytes: 3,
        allocated_bytes: 512,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        otime: Timestamp::default(),
        inode: 257,
        subvolume: 5,
        flags: Some(0),
        xattrs: [(b"user.a".to_vec(), b"b".to_vec())].into(),
        body: Body::File { hash: 4, data: std::iter::once(0..3).collect() },
    };
    let manifest_of = |entry: &Entry| {
        let mut manifest = Manifest::new();
        manifest.insert("file", entry.clone());
        manifest
    };
    let named = |changed: &Entry| {
        let differences = manifest_of(&entry).differences(&manifest_of(changed));
        differences.into_iter().map(|difference| difference.field).collect::<Vec<_>>()
    };
    for (field, change) in changes {
        let mut changed = entry.clone();
        change(&mut changed);
        assert_eq!(named(&changed), [field]);
    }
    let changed = Entry { xattrs: [].into(), ..entry.clone() };
    assert_eq!(named(&changed), ["xattr user.a"]);
    let changed = Entry { body: Body::File { hash: 5, data: Vec::new() }, ..entry.clone() };
    assert_eq!(named(&changed), ["content hash", "data ranges"]);
    let changed = Entry { body: Body::Fifo, ..entry.clone() };
    assert_eq!(named(&changed), ["type"]);

    let nothing = Manifest::new();
    assert_eq!(fields(&nothing.differences(&manifest_of(&entry))), ["entry"]);
    assert_eq!(fields(&manifest_of(&entry).differences(&nothing)), ["entry"]);
}
