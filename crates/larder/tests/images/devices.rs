//! Profiles with redundancy, with devices that are missing or have lost all content.

use std::path::PathBuf;

use larder::OpenOptions;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile, assert_same, damage};

use crate::support;

/// Files without checksums are left out: nothing tells their good copies from their bad ones.
#[track_caller]
fn build(data: Profile, metadata: Profile, devices: usize) -> KernelImage {
    let spec = ImageSpec::new(format!("{}-{}", data.name(), metadata.name()))
        .devices(&vec![256 << 20; devices])
        .profiles(data, metadata);
    println!("{}", spec.name());
    KernelImage::build(&spec, &Content::new(7).all_checksummed())
}

/// Each choice of `count` among `devices`.
fn choices(devices: usize, count: usize) -> Vec<Vec<usize>> {
    (0..1_u32 << devices)
        .filter(|set| set.count_ones() as usize == count)
        .map(|set| (0..devices).filter(|device| set & (1 << device) != 0).collect())
        .collect()
}

#[track_caller]
fn survives_loss(data: Profile, metadata: Profile, devices: usize) {
    let image = build(data, metadata, devices);
    let losses = data.tolerated_losses().min(metadata.tolerated_losses());
    for lost in choices(devices, losses) {
        println!("  lost {lost:?}");
        survives_missing(&image, &lost);
        survives_damaged(&image, &lost);
    }
}

#[track_caller]
fn survives_missing(image: &KernelImage, lost: &[usize]) {
    let is_left =
        |(number, path): (usize, &PathBuf)| (!lost.contains(&number)).then(|| path.clone());
    let left: Vec<PathBuf> = image.devices().iter().enumerate().filter_map(is_left).collect();
    let refusal = OpenOptions::new().open(&left).expect_err("devices are missing");
    assert_eq!(refusal.kind(), larder::ErrorKind::NotFound, "{refusal}");
    let fs = OpenOptions::new().degraded(true).open(&left).expect("enough devices are left");
    assert_eq!(fs.devices().iter().filter(|device| device.name.is_none()).count(), lost.len());
    assert_same(image.manifest(), &support::manifest(&fs));
}

#[track_caller]
fn survives_damaged(image: &KernelImage, lost: &[usize]) {
    let wounded = image.duplicate();
    for &number in lost {
        damage::scramble(&wounded.devices()[number]).expect("the file can be written");
    }
    let fs = OpenOptions::new().open(wounded.devices()).expect("it is sound");
    assert_same(image.manifest(), &support::manifest(&fs));
    let corrupt: u64 =
        fs.stats().volume.devices.iter().map(|device| device.corruption_errors).sum();
    assert!(corrupt > 0, "nothing was found bad on devices {lost:?}");
}

#[test]
fn mirrors_survive_loss() {
    survives_loss(Profile::Raid1, Profile::Raid1, 2);
    survives_loss(Profile::Raid1c3, Profile::Raid1c3, 3);
    survives_loss(Profile::Raid10, Profile::Raid10, 4);
}

#[test]
fn parity_survives_loss() {
    survives_loss(Profile::Raid5, Profile::Raid5, 3);
    survives_loss(Profile::Raid6, Profile::Raid1c3, 4);
    survives_loss(Profile::Raid6, Profile::Raid6, 4);
}

#[test]
fn too_few_devices_are_refused() {
    let image = build(Profile::Raid1, Profile::Raid1, 3);
    let left = &image.devices()[..1];
    let refusal = OpenOptions::new().degraded(true).open(left).expect_err("two are missing");
    assert_eq!(refusal.kind(), larder::ErrorKind::NotFound, "{refusal}");
}
