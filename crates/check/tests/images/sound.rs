//! What the kernel made is sound: no findings on any image of the matrix.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use larder_check::{Kind, Options, Phase, Progress, Report};
use larder_device::{Access, Device, FileDevice};
use larder_testkit::{Content, ImageSpec, KernelImage, Profile, Scratch, command, matrix};
use larder_volume::{OpenOptions, Volume};

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
    larder_check::check(&open(files), &options)
}

/// Shares the cases among threads, as each test is one thread.
fn check_matrix(part: usize, parts: usize) {
    for case in matrix::matrix().into_iter().skip(part).step_by(parts) {
        let name = case.spec.name().to_owned();
        let image = KernelImage::build(&case.spec, &case.content);
        let report = check(image.devices());
        // This image is not sound: one of its devices has missed a commit.
        if name == "device-out-of-date" {
            assert!(report.count_of(Kind::BlockCopyBad) > 0, "{name}:\n{report}");
            continue;
        }
        assert!(report.is_clean(), "{name}:\n{report}");
        assert_eq!(report.skipped, [""; 0], "{name}");
        assert!(report.statistics.tree_blocks > 20, "{name}:\n{report}");
        let statistics = &report.statistics;
        assert!(statistics.verified_bytes >= statistics.checksummed_bytes, "{name}:\n{report}");
    }
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

#[test]
fn of_an_image_with_missing_devices_only_these_are_found() {
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

#[test]
fn what_mkfs_fills_has_no_findings() {
    let scratch = Scratch::new();
    let source = scratch.path().join("source");
    std::fs::create_dir_all(source.join("a/b")).expect("makes folders");
    for (number, len) in [0, 100, 3000, 5000, 200_000].into_iter().enumerate() {
        std::fs::write(source.join(format!("a/file{number}")), vec![7; len]).expect("writes");
    }
    std::os::unix::fs::symlink("b/nothing", source.join("a/link")).expect("makes a link");
    std::fs::hard_link(source.join("a/file1"), source.join("a/b/again")).expect("links");
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

#[test]
fn progress_goes_forward_to_its_end() {
    let image = KernelImage::build(&ImageSpec::new("progress"), &Content::new(1));
    let seen: Mutex<Vec<Progress>> = Mutex::default();
    let note = |progress: Progress| seen.lock().expect("not poisoned").push(progress);
    let options =
        Options { check_data_csum: true, threads: 1, progress: Some(&note), ..Options::default() };
    larder_check::check(&open(image.devices()), &options);
    let seen = seen.into_inner().expect("not poisoned");
    assert!(seen.is_sorted_by_key(|progress| (progress.phase, progress.done_bytes)));
    for phase in [Phase::Files, Phase::Data] {
        let last = seen.iter().rfind(|progress| progress.phase == phase).expect("was reported");
        assert!(last.total_bytes > 0 && last.done_bytes == last.total_bytes, "{last:?}");
    }
}
