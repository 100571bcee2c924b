//! Changes to images that the kernel made: what is committed passes `btrfs check`, and the kernel
//! mounts it, sees it, scrubs it and goes on with it.

mod support;

use larder_testkit::{Checkable, Content, ImageSpec, KernelImage, Profile, oracle};
use support::{Files, open};

fn check(image: &KernelImage) {
    oracle::check(image.devices(), true).unwrap_or_else(|error| panic!("{error}"));
}

/// The files that the kernel sees are those that there should be.
fn compare(image: &KernelImage, files: &Files, prefix: &str) {
    let mount = image.mount("");
    let mut seen: Vec<String> = std::fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(prefix))
        .collect();
    seen.sort_unstable();
    let mut expected = files.names.clone();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
    // The kernel goes on from here.
    for number in 0..20 {
        let path = mount.path().join(format!("kernel-{number}"));
        let _ = std::fs::remove_file(&path);
        std::fs::write(path, vec![number; 3000 * usize::from(number)]).unwrap();
    }
}

fn rounds(spec: &ImageSpec, seed: u64) {
    let image = KernelImage::build(spec, &Content::new(seed));
    let mut files = Files::new("larder", seed);
    for _ in 0..3 {
        let manager = open(image.devices());
        for _ in 0..3 {
            files.churn(&manager, 300).unwrap();
            manager.commit().unwrap();
        }
        drop(manager);
        check(&image);
        compare(&image, &files, "larder");
    }
    check(&image);
}

#[test]
fn every_image_that_can_be_written() {
    for (seed, case) in (1..).zip(larder_testkit::matrix::matrix()) {
        let spec = &case.spec;
        let parity = [spec.data_profile(), spec.metadata_profile()].into_iter().flatten();
        let has_parity = parity.clone().any(|p| matches!(p, Profile::Raid5 | Profile::Raid6));
        if has_parity || spec.is_power_cut() || spec.checkable() != Checkable::All {
            continue;
        }
        println!("{}", spec.name());
        rounds(spec, seed);
    }
}
