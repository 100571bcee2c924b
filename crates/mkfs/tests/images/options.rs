//! Every option, judged by the kernel.

use larder_format::{ChecksumType, Profile, Uuid};
use larder_mkfs::{FeatureChoice, MkfsOptions, Owner};

use crate::common::{self, MIB, Made, Source, options};

fn features(list: &str) -> FeatureChoice {
    let mut choice = FeatureChoice::default();
    choice.apply(list).unwrap();
    choice
}

#[test]
fn defaults() {
    let source = Source::new();
    Made::new(&[400 * MIB], &options(source.path())).prove(source.path());
}

#[test]
fn node_sizes() {
    let source = Source::new();
    for node_size in [4096, 8192, 32768, 65536] {
        let options = MkfsOptions { node_size_bytes: Some(node_size), ..options(source.path()) };
        Made::new(&[700 * MIB], &options).prove(source.path());
    }
}

#[test]
fn checksums() {
    let source = Source::new();
    for checksum in ChecksumType::ALL {
        let options = MkfsOptions { checksum, ..options(source.path()) };
        Made::new(&[400 * MIB], &options).prove(source.path());
    }
}

#[test]
fn compression() {
    let source = Source::new();
    for compression in ["zlib", "zlib:9", "lzo", "zstd", "zstd:15", "zstd:-3"] {
        let compression = Some(compression.parse().unwrap());
        let options = MkfsOptions { compression, ..options(source.path()) };
        let made = Made::new(&[400 * MIB], &options);
        let dump = made.dump("5");
        let stored = |kind: &str| dump.lines().any(|line| line.contains(kind));
        assert!(
            stored("compression 1 (zlib)")
                || stored("compression 2 (lzo)")
                || stored("compression 3 (zstd)")
        );
        made.prove(source.path());
    }
}

#[test]
fn features_off_and_on() {
    let source = Source::new();
    for list in [
        "^no-holes",
        "^skinny-metadata",
        "^free-space-tree",
        "^block-group-tree",
        "quota",
        "^no-holes,^skinny-metadata,^free-space-tree,quota",
    ] {
        let options = MkfsOptions { features: features(list), ..options(source.path()) };
        Made::new(&[400 * MIB], &options).prove(source.path());
    }
    // Without extended references many links in one directory are refused by name.
    let options = MkfsOptions { features: features("^extref"), ..options(source.path()) };
    let scratch = larder_testkit::Scratch::new();
    let file = scratch.sparse_file("device", 400 * MIB);
    let error = larder_mkfs::mkfs(&[file], &options).unwrap_err().to_string();
    assert!(error.contains("links/many: too many hard links"), "{error}");
}

#[test]
fn mixed_groups() {
    let source = Source::new();
    for profile in [None, Some(Profile::Dup)] {
        let options = MkfsOptions { mixed: true, data_profile: profile, ..options(source.path()) };
        Made::new(&[200 * MIB], &options).prove(source.path());
    }
}

#[test]
fn label_uuids_owner_and_size() {
    let source = Source::new();
    let (uuid, device_uuid) = (Uuid::from_u128(0xA11CE), Uuid::from_u128(0xB0B));
    let options = MkfsOptions {
        label: "flour bin".into(),
        uuid: Some(uuid),
        device_uuid: Some(device_uuid),
        owner: Some(Owner { uid: 12, gid: 34 }),
        byte_count: Some(300 * MIB + 5000),
        ..options(source.path())
    };
    let made = Made::new(&[900 * MIB], &options);
    assert_eq!(made.files[0].metadata().unwrap().len(), 300 * MIB + 5000);
    made.check();
    let dump = larder_testkit::oracle::dump_super(&made.files[0]).unwrap();
    for line in [
        "label\t\t\tflour bin",
        &format!("fsid\t\t\t{uuid}"),
        &format!("dev_item.uuid\t\t{device_uuid}"),
        &format!("total_bytes\t\t{}", 300 * MIB + 4096),
    ] {
        assert!(dump.contains(line), "{line} is not in {dump}");
    }
    let mount = made.mount("ro");
    let owners = common::comparable(mount.path());
    assert!(owners.entries.values().all(|entry| (entry.uid, entry.gid) == (12, 34)));
}

#[test]
fn sector_sizes_that_this_machine_cannot_mount() {
    let source = Source::new();
    for sector_size in [8192, 16384, 65536] {
        let options = MkfsOptions { sector_size_bytes: sector_size, ..options(source.path()) };
        Made::new(&[500 * MIB], &options).check();
    }
}

#[test]
fn shrunk_to_the_content() {
    let source = Source::new();
    for compression in [None, Some("zstd:5".parse().unwrap())] {
        let options = MkfsOptions { shrink: true, compression, ..options(source.path()) };
        let made = Made::new(&[2048 * MIB], &options);
        let len_bytes = made.files[0].metadata().unwrap().len();
        assert_eq!(len_bytes, made.summary.total_bytes);
        assert!(len_bytes < 60 * MIB, "{len_bytes}");
        made.check();
        made.assert_holds(source.path());
        // There is space for the kernel's own transactions, and the rest can be regained.
        std::fs::File::options()
            .write(true)
            .open(&made.files[0])
            .and_then(|file| file.set_len(500 * MIB))
            .unwrap();
        let mount = made.mount("");
        let path = mount.path().to_str().unwrap();
        larder_testkit::command::run("btrfs", ["filesystem", "resize", "max", path]).unwrap();
        drop(mount);
        made.let_the_kernel_work();
    }
}

/// Bytes that extents use, on all devices together.
fn used_bytes(made: &Made) -> u64 {
    let dump = made.dump("2") + &made.dump("11");
    let of_group = |line: &str| {
        let mut words = line.trim().strip_prefix("block group used ")?.split(' ');
        let used: u64 = words.next()?.parse().ok()?;
        Some(if line.contains("DUP") { 2 * used } else { used })
    };
    dump.lines().filter_map(of_group).sum()
}

/// A folder with so many files of a length, none of which compresses.
fn folder_of(files: usize, len_bytes: usize) -> larder_testkit::Scratch {
    let scratch = larder_testkit::Scratch::new();
    let mut seed = larder_testkit::seed(1);
    let mut data = vec![0; len_bytes];
    for number in 0..files {
        for word in data.chunks_mut(8) {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(seed ^ seed >> 29).to_le_bytes()[..word.len()]);
        }
        let path = scratch.path().join(format!("folder{}/file{number}", number % 10));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &data).unwrap();
    }
    scratch
}

#[test]
fn shrunk_images_have_little_but_content() {
    // The first MiB, the chunk tree, and what one transaction of the kernel needs.
    let floor = 5 * MIB;
    for (files, len_bytes, profile, most_percent) in [
        (1, 150 << 20, None, 5),
        (1, 100 << 20, Some(Profile::Dup), 5),
        (10_000, 12_000, None, 5),
        (10_000, 12_000, Some(Profile::Dup), 5),
        // Before and after the place of a superblock.
        (1, 55 << 20, None, 10),
        (30, 2 << 20, None, 10),
        (1000, 1000, None, 0),
        (0, 0, None, 0),
    ] {
        let source = folder_of(files, len_bytes);
        let options = MkfsOptions { shrink: true, data_profile: profile, ..options(source.path()) };
        let made = Made::new(&[1000 * MIB], &options);
        let (total, used) = (made.summary.total_bytes, used_bytes(&made));
        println!("{files} files of {len_bytes} bytes: {total} bytes for {used}");
        assert!(used >= files as u64 * len_bytes as u64, "{used}");
        let most = if most_percent > 0 { used * (100 + most_percent) / 100 } else { used + floor };
        assert!(total <= most, "{total} bytes for {used}");
        made.check();
        made.assert_holds(source.path());
        // The kernel mounts it for writing, and removes files.
        let mount = made.mount("");
        let _ = std::fs::remove_dir_all(mount.path().join("folder3"));
        larder_testkit::command::run("sync", ["-f".as_ref(), mount.path().as_os_str()]).unwrap();
        drop(mount);
        made.check();
    }
}

#[test]
fn shrunk_in_other_layouts() {
    let source = Source::new();
    let (raid1, dup) = (Some(Profile::Raid1), Some(Profile::Dup));
    for (devices, mixed, profile) in [(2, false, raid1), (1, true, None), (1, false, dup)] {
        let (shrink, data_profile) = (true, profile);
        let options = MkfsOptions { shrink, mixed, data_profile, ..options(source.path()) };
        let made = Made::new(&vec![1000 * MIB; devices], &options);
        for (file, device) in made.files.iter().zip(&made.summary.devices) {
            let len_bytes = file.metadata().unwrap().len();
            assert!(len_bytes == device.len_bytes && len_bytes < 70 * MIB, "{len_bytes}");
        }
        made.check();
        made.assert_holds(source.path());
    }
}

#[test]
fn files_are_made_as_long_as_the_content_needs() {
    let source = Source::new();
    std::fs::remove_file(source.path().join("data/far-apart")).unwrap();
    let scratch = larder_testkit::Scratch::new();
    for (name, existing) in [("new", None), ("short", Some(10)), ("long", Some(5 << 30))] {
        let path = scratch.path().join(name);
        if let Some(len_bytes) = existing {
            scratch.sparse_file(name, len_bytes);
        }
        let summary =
            larder_mkfs::mkfs(std::slice::from_ref(&path), &options(source.path())).unwrap();
        let len_bytes = path.metadata().unwrap().len();
        assert_eq!(len_bytes, summary.total_bytes);
        assert!(existing != Some(5 << 30) || len_bytes == 5 << 30);
        larder_testkit::oracle::check(&[path], true).unwrap();
    }
}
