//! Images that the kernel made are sound: no findings on any image of the matrix.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use larder_check::{Kind, Options, Phase, Progress, Report, Stopped};
use larder_device::{Access, Device, FileDevice};
use larder_format::Superblock;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_testkit::{
    Content, Feature, ImageSpec, KernelImage, KernelMount, Profile, Scratch, SpaceCache,
    clone_range, command, matrix,
};
use larder_volume::{OpenOptions, Volume};
use zerocopy::FromBytes;

/// Opens image files, also when some are missing.
fn open(files: &[PathBuf]) -> Volume {
    let open = |file: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(file, Access::ReadOnly).expect("an image file opens"))
    };
    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    Volume::open(files.iter().map(open).collect(), &options).expect("it opens")
}

/// Checks image files, data included.
fn check(files: &[PathBuf]) -> Report {
    let options = Options { check_data_csum: true, threads: 2, ..Options::default() };
    larder_check::check(&open(files), &options).expect("nobody stops it")
}

/// Shares the cases among threads: each test is one thread.
fn check_matrix(part: usize, parts: usize) {
    for case in matrix::matrix().into_iter().skip(part).step_by(parts) {
        let name = case.spec.name().to_owned();
        let image = KernelImage::build(&case.spec, &case.content);
        let report = check(image.devices());
        // This image is not sound: one of its devices missed a commit.
        if name == "device-out-of-date" {
            assert!(report.count_of(Kind::BlockCopyBad) > 0, "{name}:\n{report}");
            assert_eq!(report.count_of(Kind::DeviceOutOfDate), 1, "{name}:\n{report}");
            continue;
        }
        assert!(report.is_clean(), "{name}:\n{report}");
        assert_eq!(report.skipped, [""; 0], "{name}");
        assert!(report.statistics.tree_blocks > 20, "{name}:\n{report}");
        let statistics = &report.statistics;
        assert!(statistics.verified_bytes >= statistics.checksummed_bytes, "{name}:\n{report}");
    }
}

/// The kernel notes the root tree of a commit when the next transaction runs already. That is the last
/// one then, and has changed the tree again before it ended.
#[test]
fn a_backup_root_may_be_of_the_transaction_that_followed() {
    let image = KernelImage::empty(&ImageSpec::new("early-backup").node_size(4096));
    let mount = image.mount("noatime");
    for number in 0..6 {
        std::fs::write(mount.path().join("bread"), [number; 5000]).expect("writes");
        command::run("sync", ["-f".as_ref(), mount.path().as_os_str()]).expect("commits");
    }
    drop(mount);
    let file = &image.devices()[0];
    let device = FileDevice::open(file, Access::ReadWrite).expect("opens");
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, OFFSETS[0].0).expect("reads");
    let superblock = Superblock::mut_from_bytes(&mut bytes).expect("has its size");
    let generation = superblock.generation;
    let mut backups = superblock.super_roots.iter();
    let last = backups.position(|it| it.tree_root_gen == generation).expect("it is noted");
    let before = (last + superblock.super_roots.len() - 1) % superblock.super_roots.len();
    assert!(superblock.super_roots[before].tree_root != superblock.root);
    superblock.super_roots[before].tree_root_gen = generation;
    superblock.update_checksum();
    device.write_at(&bytes, OFFSETS[0].0).expect("writes");
    drop(device);
    let report = check(image.devices());
    assert_eq!(report.count_of(Kind::BackupRoot), 0, "{report}");
}

#[test]
fn even_images_of_the_matrix_have_no_findings() {
    check_matrix(0, 2);
}

#[test]
fn odd_images_of_the_matrix_have_no_findings() {
    check_matrix(1, 2);
}

#[test]
fn large_images_have_no_findings() {
    for case in matrix::large() {
        let image = KernelImage::build(&case.spec, &case.content);
        let report = check(image.devices());
        assert!(report.is_clean(), "{}:\n{report}", case.spec.name());
    }
}

/// As many links as the kernel allows, extents that many files share in part, and preallocated
/// space that is written and punched.
#[test]
fn files_at_the_limits_of_the_format_have_no_findings() {
    const LINKS: usize = 65_535;
    const CLONES: u64 = 2000;
    let specs = [
        (ImageSpec::new("limits"), LINKS),
        (ImageSpec::new("limits-4k").node_size(4096).without(Feature::NoHoles), LINKS),
        // An item has no room for more names.
        (ImageSpec::new("limits-no-extref").without(Feature::ExtendedReferences), 500),
    ];
    for (spec, least_links) in specs {
        let image = KernelImage::empty(&spec);
        let mount = image.mount("noatime");
        let at = |name: &str| mount.path().join(name);
        std::fs::write(at("linked"), "bread").expect("writes");
        std::fs::create_dir(at("links")).expect("makes a folder");
        let is_linked = |number: &usize| {
            std::fs::hard_link(at("linked"), at(&format!("links/{number}"))).is_ok()
        };
        let links = 1 + (1..=LINKS).take_while(is_linked).count();
        assert!((least_links..=LINKS).contains(&links), "{}: {links} links", spec.name());

        std::fs::write(at("shared"), vec![7; 1 << 20]).expect("writes");
        let shared = File::open(at("shared")).expect("opens");
        let clones = File::create(at("clones")).expect("creates");
        for number in 0..CLONES {
            let start = number % 250 * 4096;
            clone_range(&clones, number * 8192, &shared, start, 8192).expect("clones");
        }
        clones.write_all_at(&[9; 10_000], 100_000).expect("writes");

        let room = File::create(at("room")).expect("creates");
        let allocate = |words: &[&str]| {
            let words = words.iter().map(OsStr::new);
            command::run("fallocate", words.chain([at("room").as_os_str()])).expect("allocates");
        };
        allocate(&["--keep-size", "--length", "8MiB"]);
        (0..100).for_each(|piece| {
            room.write_all_at(&[3; 5000], piece * 50_000).expect("writes");
        });
        room.sync_all().expect("syncs");
        allocate(&["--punch-hole", "--offset", "300000", "--length", "1000000"]);
        drop(mount);
        let report = check(image.devices());
        assert!(report.is_clean(), "{}:\n{report}", spec.name());
    }
}

#[test]
fn missing_devices_are_the_only_findings() {
    let cases = [
        (Profile::Raid1, 2, 1),
        (Profile::Raid1c3, 3, 2),
        (Profile::Raid10, 4, 1),
        (Profile::Raid5, 3, 1),
        (Profile::Raid6, 4, 2),
    ];
    for (profile, devices, missing) in cases {
        let spec = ImageSpec::new(profile.name())
            .devices(&vec![256 << 20; devices])
            .profiles(profile, profile);
        let image = KernelImage::build(&spec, &Content::new(3));
        let report = check(&image.devices()[missing..]);
        let kinds: Vec<Kind> = report.kinds.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [Kind::MissingDevice], "{profile:?}:\n{report}");
        assert_eq!(report.count(), missing as u64, "{profile:?}:\n{report}");
    }
}

/// A folder of files of several sizes and two links.
fn folder_in(scratch: &Scratch) -> PathBuf {
    let folder = scratch.path().join("source");
    std::fs::create_dir_all(folder.join("a/b")).expect("makes folders");
    for (number, len) in [0, 100, 3000, 5000, 200_000].into_iter().enumerate() {
        std::fs::write(folder.join(format!("a/file{number}")), vec![7; len]).expect("writes");
    }
    std::os::unix::fs::symlink("b/nothing", folder.join("a/link")).expect("makes a link");
    std::fs::hard_link(folder.join("a/file1"), folder.join("a/b/again")).expect("links");
    folder
}

#[test]
fn images_that_mkfs_filled_have_no_findings() {
    let scratch = Scratch::new();
    let source = folder_in(&scratch);
    for options in [&[][..], &["--nodesize", "4096"], &["--mixed"], &["--features", "^no-holes"]] {
        let image = scratch.sparse_file("image", 256 << 20);
        let rootdir = ["--quiet", "--force", "--rootdir"].map(OsStr::new);
        let paths = [source.as_os_str(), image.as_os_str()];
        let options = options.iter().map(OsStr::new);
        command::run("mkfs.btrfs", options.clone().chain(rootdir).chain(paths)).expect("makes");
        let report = check(&[image]);
        assert!(report.is_clean(), "{:?}:\n{report}", options.collect::<Vec<_>>());
        assert!(report.statistics.data_extents > 0, "{report}");
    }
}

/// The chunks avoid the places of ext4's metadata, and a subvolume holds the old file system as one
/// file.
#[test]
fn converted_ext4_images_have_no_findings() {
    let scratch = Scratch::new();
    let source = folder_in(&scratch);
    let image = scratch.sparse_file("image", 512 << 20);
    let arguments = ["-q", "-t", "ext4", "-d"].map(OsStr::new);
    let paths = [source.as_os_str(), image.as_os_str()];
    command::run("mke2fs", arguments.into_iter().chain(paths)).expect("makes");
    command::run("btrfs-convert", [image.as_os_str()]).expect("converts");
    for what in ["converted", "mounted once"] {
        let report = check(std::slice::from_ref(&image));
        assert!(report.is_clean(), "{what}:\n{report}");
        drop(KernelMount::open(std::slice::from_ref(&image), ""));
    }
}

/// Space caches of both kinds, made, dropped and made again, and options that change the properties
/// of new files.
#[test]
fn images_with_changed_options_have_no_findings() {
    let spec = ImageSpec::new("options").devices(&[4 << 30]).space_cache(SpaceCache::Files);
    let image = KernelImage::build(&spec, &Content::new(8));
    let options = [
        "space_cache=v2",
        "clear_cache,space_cache=v1,nodatacow",
        "space_cache=v1,compress-force=lzo",
        "clear_cache,space_cache=v2,nodatasum",
        "compress-force=zstd,max_inline=0",
        "clear_cache,nospace_cache",
    ];
    for (number, options) in options.into_iter().enumerate() {
        let mount = image.mount(options);
        let folder = mount.path().join(format!("options{number}"));
        std::fs::create_dir(&folder).expect("makes a folder");
        for len in [100, 3000, 200_000, 3 << 20] {
            std::fs::write(folder.join(len.to_string()), vec![7; len]).expect("writes");
        }
        drop(mount);
        let report = check(image.devices());
        assert!(report.is_clean(), "after {options}:\n{report}");
    }
}

#[test]
fn progress_goes_forward_to_its_end() {
    let image = KernelImage::build(&ImageSpec::new("progress"), &Content::new(1));
    let seen: Mutex<Vec<Progress>> = Mutex::default();
    let note = |progress: Progress| {
        seen.lock().expect("not poisoned").push(progress);
        ControlFlow::Continue(())
    };
    let options =
        Options { check_data_csum: true, threads: 1, progress: Some(&note), ..Options::default() };
    larder_check::check(&open(image.devices()), &options).expect("nobody stops it");
    let seen = seen.into_inner().expect("not poisoned");
    assert!(seen.is_sorted_by_key(|progress| (progress.phase, progress.done_bytes)));
    for phase in [Phase::Files, Phase::Data] {
        let last = seen.iter().rfind(|progress| progress.phase == phase).expect("was reported");
        assert!(last.total_bytes > 0 && last.done_bytes == last.total_bytes, "{last:?}");
    }
}

#[test]
fn the_caller_stops_it_in_any_phase() {
    let image = KernelImage::build(&ImageSpec::new("stopped"), &Content::new(1));
    for at in [Phase::Trees, Phase::Space, Phase::Files, Phase::Relations, Phase::Data] {
        for threads in [1, 3] {
            let last = Mutex::new(Phase::Trees);
            let stop = |progress: Progress| {
                *last.lock().expect("not poisoned") = progress.phase;
                if progress.phase < at { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let options = Options {
                check_data_csum: true,
                threads,
                progress: Some(&stop),
                ..Options::default()
            };
            let result = larder_check::check(&open(image.devices()), &options);
            assert_eq!(result.err(), Some(Stopped), "{at}");
            assert_eq!(
                last.into_inner().expect("not poisoned"),
                at,
                "it went on to the next phase"
            );
        }
    }
}
