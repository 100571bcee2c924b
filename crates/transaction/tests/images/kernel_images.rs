//! Changes to images of the kernel: the committed state passes `btrfs check`, and the kernel mounts
//! it, sees it, scrubs it and goes on with it.

use larder_testkit::matrix::matrix;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile, oracle};
use larder_transaction::Error;

use crate::support::{Files, open, try_open};

/// The kernel sees the expected files.
fn compare(image: &KernelImage, files: &Files, prefix: &str) {
    let mount = image.mount("subvolid=5");
    let mut seen: Vec<String> = std::fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(prefix))
        .collect();
    seen.sort_unstable();
    let mut expected = files.names.clone();
    expected.sort_unstable();
    assert!(seen == expected, "{} files where {} should be", seen.len(), expected.len());
    // The kernel does not scrub a seed, which cannot be healed.
    if image.spec().name() != "sprout" {
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
    }
    // The kernel goes on from here.
    for number in 0..20 {
        let path = mount.path().join(format!("kernel-{number}"));
        let _ = std::fs::remove_file(&path);
        std::fs::write(path, vec![number; 3000 * usize::from(number)]).unwrap();
    }
}

fn rounds(spec: &ImageSpec, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let image = KernelImage::build(spec, &Content::new(seed));
    let mut files = Files::new("larder", seed);
    for round in 0..2 {
        let manager = open(image.devices());
        for _ in 0..3 {
            files.churn(&manager, 300).unwrap();
            manager.commit().unwrap();
        }
        drop(manager);
        // Data on a device that missed commits is old until the kernel's scrub, which follows.
        let is_out_of_date = round == 0 && spec.name() == "device-out-of-date";
        oracle::check(image.devices(), !is_out_of_date).unwrap_or_else(|error| panic!("{error}"));
        compare(&image, &files, "larder");
    }
    oracle::check(image.devices(), true).unwrap_or_else(|error| panic!("{error}"));
}

/// Whether an image can only be read here.
fn is_refused(spec: &ImageSpec) -> bool {
    let profiles = [spec.data_profile(), spec.metadata_profile()];
    let is_parity = |profile: &Profile| matches!(profile, Profile::Raid5 | Profile::Raid6);
    profiles.iter().flatten().any(is_parity)
        || spec.is_power_cut()
        || spec.name() == "converted"
        || spec.name() == "simple-quota"
}

#[test]
fn every_image_that_can_be_written() {
    for (seed, case) in (1..).zip(matrix()).filter(|(_, case)| !is_refused(&case.spec)) {
        println!("{}", case.spec.name());
        rounds(&case.spec, seed);
    }
}

#[test]
fn read_only_images_are_refused_with_the_reason() {
    let reasons = [
        ("raid5-2-devices", "RAID5"),
        ("raid6-data-raid1c3-metadata", "RAID5 or RAID6"),
        ("simple-quota", "simple quotas"),
        ("converted", "RAID5"),
        ("power-cut", "log tree"),
    ];
    for (name, reason) in reasons {
        let case = matrix().into_iter().find(|case| case.spec.name() == name).unwrap();
        assert!(is_refused(&case.spec));
        let image = KernelImage::build(&case.spec, &case.content);
        match try_open(image.devices()) {
            Err(error @ Error::ReadOnly(_)) => {
                assert!(error.to_string().contains(reason), "{error}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}
