//! Every profile, on as many devices as it needs and on more.

use larder_format::Profile;
use larder_mkfs::MkfsOptions;
use larder_testkit::Scratch;

use crate::common::{self, MIB, Made, Source, options};

fn with(data: Profile, metadata: Profile, base: MkfsOptions) -> MkfsOptions {
    MkfsOptions { data_profile: Some(data), metadata_profile: Some(metadata), ..base }
}

/// Profiles and numbers of devices.
const LAYOUTS: [(Profile, usize); 16] = [
    (Profile::Single, 1),
    (Profile::Single, 3),
    (Profile::Dup, 1),
    (Profile::Dup, 2),
    (Profile::Raid0, 1),
    (Profile::Raid0, 3),
    (Profile::Raid1, 2),
    (Profile::Raid1, 3),
    (Profile::Raid1c3, 3),
    (Profile::Raid1c4, 4),
    (Profile::Raid10, 2),
    (Profile::Raid10, 5),
    (Profile::Raid5, 2),
    (Profile::Raid5, 3),
    (Profile::Raid6, 3),
    (Profile::Raid6, 4),
];

fn lens(devices: usize) -> Vec<u64> {
    (0..devices as u64).map(|n| (500 + 40 * n) * MIB).collect()
}

#[test]
fn empty() {
    for (profile, devices) in LAYOUTS {
        println!("{profile} on {devices}");
        let made = Made::new(&lens(devices), &with(profile, profile, MkfsOptions::default()));
        made.check();
        made.let_the_kernel_work();
    }
}

#[test]
fn filled() {
    let source = Source::new();
    for (profile, devices) in LAYOUTS {
        println!("{profile} on {devices}");
        let made = Made::new(&lens(devices), &with(profile, profile, options(source.path())));
        made.prove(source.path());
    }
}

#[test]
fn different_profiles_and_defaults() {
    let source = Source::new();
    for (data, metadata) in [
        (Profile::Raid0, Profile::Raid1),
        (Profile::Raid5, Profile::Raid1c3),
        (Profile::Raid6, Profile::Raid10),
        (Profile::Single, Profile::Dup),
    ] {
        let made = Made::new(&lens(4), &with(data, metadata, options(source.path())));
        made.prove(source.path());
    }
    let made = Made::new(&lens(2), &options(source.path()));
    let profiles: Vec<_> =
        made.summary.block_groups.iter().map(|group| (group.name, group.profile)).collect();
    let expected =
        [("Data", Profile::Single), ("Metadata", Profile::Raid1), ("System", Profile::Raid1)];
    assert_eq!(profiles, expected);
    made.prove(source.path());
}

/// Parity does not cover old content of a device that was not overwritten.
#[test]
fn on_devices_that_are_not_blank() {
    let source = Source::new();
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4), (Profile::Dup, 1)] {
        let scratch = Scratch::new();
        let files: Vec<_> = (0..devices)
            .map(|number| {
                let path = scratch.path().join(format!("device-{number}"));
                std::fs::write(&path, common::noise(150 * MIB as usize + number)).unwrap();
                path
            })
            .collect();
        let options =
            MkfsOptions { discard: false, ..with(profile, profile, options(source.path())) };
        larder_mkfs::mkfs(&files, &options).unwrap();
        larder_testkit::oracle::check(&files, true).unwrap();
        let lost = profile.shape().tolerated_losses();
        let mount = larder_testkit::KernelMount::open(&files[lost..], "ro,degraded");
        let (expected, found) =
            (common::comparable(source.path()), common::comparable(mount.path()));
        larder_testkit::assert_same(&expected, &found);
    }
}

/// The kernel must rebuild the data that was written: scrubbing compares parity and mirrors, and
/// reading works without a device.
#[test]
fn redundancy_is_real() {
    let source = Source::new();
    for (profile, devices) in LAYOUTS {
        println!("{profile} on {devices}");
        if profile.shape().tolerated_losses() == 0 {
            continue;
        }
        let made = Made::new(&lens(devices), &with(profile, profile, options(source.path())));
        let mount = made.mount("noatime");
        let report = larder_testkit::oracle::scrub(&mount).unwrap();
        assert!(report.contains("no errors found"), "{profile}: {report}");
        drop(mount);
        let lost = profile.shape().tolerated_losses();
        let degraded = larder_testkit::KernelMount::open(&made.files[lost..], "ro,degraded");
        let (expected, found) =
            (common::comparable(source.path()), common::comparable(degraded.path()));
        larder_testkit::assert_same(&expected, &found);
    }
}
