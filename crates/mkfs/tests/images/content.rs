//! Content that is large, odd, or spread over subvolumes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use larder_mkfs::MkfsOptions;
use larder_testkit::command::run;
use larder_testkit::manifest::Timestamp;
use larder_testkit::{Content, ImageSpec, KernelImage, Scratch, assert_same};

use crate::common::{MIB, Made, Source, comparable, noise, options, text};

/// A file system with everything that the kernel can write, copied.
#[test]
fn an_image_filled_by_the_kernel() {
    let image = KernelImage::build(&ImageSpec::new("source"), &Content::new(7));
    let source = image.mount("ro");
    for (node_size, compression) in [(16384, None), (65536, Some("zstd".parse().unwrap()))] {
        let options =
            MkfsOptions { node_size_bytes: Some(node_size), compression, ..options(source.path()) };
        let made = Made::new(&[1024 * MIB], &options);
        made.check();
        let mount = made.mount("ro");
        let (mut expected, mut found) = (comparable(source.path()), comparable(mount.path()));
        for manifest in [&mut expected, &mut found] {
            for entry in manifest.entries.values_mut() {
                // The kernel makes up the times of a directory that stands for a subvolume.
                (entry.ctime, entry.mtime) = (Timestamp::default(), Timestamp::default());
            }
        }
        assert_same(&expected, &found);
    }
}

#[test]
fn a_directory_of_65000_files() {
    let source = Scratch::new();
    let folder = source.path().join("many");
    fs::create_dir(&folder).unwrap();
    let content = text(2400);
    for number in 0..65_000_u32 {
        // Most are inline, each seventh is an extent.
        let size = (number % 7) as usize * 400;
        fs::write(folder.join(format!("file-{number:05}")), &content[..size]).unwrap();
    }
    for node_size in [4096, 16384] {
        let options = MkfsOptions { node_size_bytes: Some(node_size), ..options(source.path()) };
        let made = Made::new(&[1024 * MIB], &options);
        made.check();
        made.assert_holds(source.path());
    }
}

#[test]
fn extents_chunks_and_superblock_copies() {
    let source = Scratch::new();
    // Longer than an extent, than a chunk on this device, and across the place of a superblock
    // copy.
    let file = File::create(source.path().join("long")).unwrap();
    let piece = noise(1 << 20);
    for number in 0..300 {
        file.write_all_at(&piece, number * MIB + number % 3).unwrap();
    }
    fs::write(source.path().join("after"), text(100_000)).unwrap();
    let made = Made::new(&[900 * MIB], &options(source.path()));
    made.check();
    made.assert_holds(source.path());
    let chunks = made.dump("chunk").matches("type DATA|single").count();
    assert!(chunks > 1, "{chunks} data chunks");
}

/// Devices that reach to the third superblock, and that are too large for small chunks.
#[test]
fn large_devices() {
    let source = Source::new();
    for (len_bytes, superblocks) in [(256 << 30, 2), ((256 << 30) + 8192, 3), (3 << 40, 3)] {
        let made = Made::new(&[len_bytes], &options(source.path()));
        made.check();
        made.assert_holds(source.path());
        let dump = larder_testkit::oracle::dump_super(&made.files[0]).unwrap();
        assert_eq!(dump.matches("[match]\nbytenr").count(), superblocks, "{dump}");
    }
}

#[test]
fn times_and_owners_to_the_nanosecond() {
    let source = Scratch::new();
    let path = source.path().join("file");
    fs::write(&path, "x").unwrap();
    let times = fs::FileTimes::new()
        .set_accessed(UNIX_EPOCH + Duration::new(1_000_000_000, 1))
        .set_modified(UNIX_EPOCH - Duration::new(7, 999_999_998));
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let before = path.symlink_metadata().unwrap();
    let made = Made::new(&[200 * MIB], &options(source.path()));
    let mount = made.mount("ro");
    let copy = mount.path().join("file").symlink_metadata().unwrap();
    let times = |status: &fs::Metadata| {
        [
            (status.atime(), status.atime_nsec()),
            (status.mtime(), status.mtime_nsec()),
            (status.ctime(), status.ctime_nsec()),
        ]
    };
    assert_eq!(times(&copy), times(&before));
    assert_eq!(times(&path.symlink_metadata().unwrap()), times(&before), "the source is unchanged");
}

#[test]
fn subvolumes() {
    let source = Source::new();
    let specs = ["sub", "ro:sub/ro", "default:./sub/inner/"];
    let specs: Vec<_> = specs.map(|spec| spec.parse().unwrap()).into();
    // Links across a subvolume's border become separate inodes.
    let crossing = source.path().join("sub/inner/crossing");
    fs::hard_link(source.path().join("links/many"), &crossing).unwrap();
    let options = MkfsOptions { subvolumes: specs, ..options(source.path()) };
    let made = Made::new(&[400 * MIB], &options);
    made.check();

    let default = made.mount("ro");
    assert_eq!(fs::read(default.path().join("deep/file")).unwrap(), b"sub/inner/deep".repeat(700));
    drop(default);

    let mount = made.mount("subvolid=5");
    let list = run("btrfs", [Path::new("subvolume"), Path::new("list"), mount.path()]).unwrap();
    for line in [
        "ID 256 gen 1 top level 5 path sub",
        "ID 257 gen 1 top level 256 path sub/inner",
        "ID 258 gen 1 top level 256 path sub/ro",
    ] {
        assert!(list.contains(line), "{line} is not in {list}");
    }
    let (mut expected, mut found) = (comparable(source.path()), comparable(mount.path()));
    for manifest in [&mut expected, &mut found] {
        // One name of "many" is in another subvolume.
        manifest.entries.values_mut().for_each(|entry| entry.nlink = 0);
    }
    assert_same(&expected, &found);
    assert_eq!(mount.path().join("sub/inner/crossing").metadata().unwrap().nlink(), 1);
    assert_eq!(mount.path().join("links/many").metadata().unwrap().nlink(), 401);
    assert!(fs::write(mount.path().join("sub/ro/new"), "no").is_err());
    fs::write(mount.path().join("sub/new"), "yes").unwrap();
    drop(mount);
    made.check();
    made.let_the_kernel_work();
}

/// The counts of quota groups are right from the start: a rescan finds the same.
#[test]
fn quota_groups_of_subvolumes() {
    let source = Source::new();
    let mut features = larder_mkfs::FeatureChoice::default();
    features.apply("quota").unwrap();
    let specs = ["sub", "sub/inner"].map(|spec| spec.parse().unwrap()).into();
    let options = MkfsOptions { subvolumes: specs, features, ..options(source.path()) };
    let made = Made::new(&[400 * MIB], &options);
    made.check();
    let mount = made.mount("noatime");
    let show = || {
        let arguments = ["qgroup", "show", "--raw", mount.path().to_str().unwrap()];
        run("btrfs", arguments).unwrap()
    };
    let before = show();
    let lines: Vec<_> = before.lines().filter(|line| line.starts_with("0/")).collect();
    assert_eq!(lines.len(), 3, "{before}");
    run("btrfs", ["quota", "rescan", "-w", mount.path().to_str().unwrap()]).unwrap();
    assert_eq!(show(), before);
}
