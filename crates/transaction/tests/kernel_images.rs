//! Changes to images that the kernel made: what is committed passes `btrfs check`, and the kernel
//! mounts it, sees it, scrubs it and goes on with it.

mod support;

use larder_testkit::{Content, ImageSpec, KernelImage, oracle};
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
fn the_default_image() {
    rounds(&ImageSpec::new("default"), 1);
}

#[test]
fn small_nodes() {
    rounds(&ImageSpec::new("nodes-4k").node_size(4096), 2);
}
