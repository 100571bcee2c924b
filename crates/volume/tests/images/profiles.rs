//! Every profile as the kernel wrote it: whole, without devices, and with devices full of garbage.
//!
//! Needs root, loop devices and a kernel with btrfs.

use larder_format::Logical;
use larder_testkit::{KernelImage, Profile, damage, oracle};
use larder_volume::{OpenError, OpenOptions, ReadPolicy, Volume};

use crate::support::{
    Everything, choices, extents_of, image, kernel_file, open, try_open, without,
};

const READ: OpenOptions = OpenOptions {
    write: false,
    degraded: false,
    superblock_copy: None,
    any_state: false,
    short_devices: false,
    rescue: larder_volume::Rescue::NONE,
    state: None,
    read_policy: ReadPolicy::Spread,
};
const DEGRADED: OpenOptions = OpenOptions { degraded: true, ..READ };

/// Reads everything, and compares one file with the kernel's view.
#[track_caller]
fn read_whole(image: &KernelImage) -> Everything {
    let volume = open(image.devices(), &READ);
    let found = Everything::read(&volume);
    assert_eq!(found.failures.messages, [""; 0], "nothing is wrong with a sound image");
    assert!(found.blocks.len() > 20 && found.data.len() > 5, "{found:?}");
    let (inode, wanted) = kernel_file(image.mount("ro").path(), "data/noise-1048576");
    assert_eq!(file_content(&volume, inode, wanted.len()), wanted);
    found
}

fn file_content(volume: &Volume, inode: u64, len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    for (offset, logical, len_bytes) in extents_of(volume, inode) {
        let part = &mut content[offset as usize..][..len_bytes as usize];
        volume.read_data(logical, part, None).expect("the extent reads");
    }
    content
}

#[track_caller]
fn reads_without_devices(image: &KernelImage, wanted: &Everything, losses: usize) {
    let devices = image.devices();
    for lost in choices(devices.len(), losses) {
        let left = without(devices, &lost);
        let OpenError::MissingDevices { missing, .. } =
            try_open(&left, &READ).expect_err("devices lack")
        else {
            panic!("it should say that devices are missing")
        };
        let missing: Vec<usize> = missing.iter().map(|m| m.devid as usize - 1).collect();
        assert!(missing.iter().all(|devid| lost.contains(devid)), "{missing:?} of {lost:?}");
        let volume = open(&left, &DEGRADED);
        let found = Everything::read(&volume);
        assert_eq!(&found, wanted, "without {lost:?}");
        assert_eq!(found.failures.messages, [""; 0], "what is missing is no news");
        assert_eq!(volume.stats().healed, 0);
    }
}

/// With one device more lost than the profile tolerates, opening says which chunk is lost, or which
/// devices the chunk tree needs.
#[track_caller]
fn refuses_without(image: &KernelImage, lost: &[usize]) {
    let left = without(image.devices(), lost);
    match try_open(&left, &DEGRADED).map(drop).expect_err("too few are left") {
        OpenError::NotEnoughDevices { missing, .. } => assert_eq!(missing.len(), lost.len()),
        OpenError::MissingDevices { missing, .. } => assert!(!missing.is_empty()),
        error => panic!("{error}"),
    }
}

/// Scrambles the devices in `hit`, reads everything through a writable volume that prefers each of
/// them in turn, and makes the kernel scrub the result.
#[track_caller]
fn heals(image: &KernelImage, wanted: &Everything, hit: &[usize]) {
    let copy = image.duplicate();
    for &at in hit {
        damage::scramble(&copy.devices()[at]).expect("the device can be scrambled");
    }
    let before = Everything::read(&open(copy.devices(), &READ));
    assert_eq!(&before, wanted, "read-only, with {hit:?} scrambled");
    assert_eq!(before.failures.healed, 0, "nothing is written to a volume open for reading");
    let mut healed = 0;
    for &at in hit {
        let read_policy = ReadPolicy::Prefer(at as u64 + 1);
        let volume = open(copy.devices(), &OpenOptions { write: true, read_policy, ..READ });
        let found = Everything::read(&volume);
        assert_eq!(&found, wanted, "with {hit:?} scrambled");
        let again = Everything::read(&volume);
        assert_eq!(again.failures.messages, [""; 0], "what was healed stays so");
        assert_eq!(volume.stats().healed, found.failures.healed as u64);
        healed += found.failures.healed;
        volume.flush().expect("it flushes");
    }
    assert!(healed > 20, "only {healed} blocks and sectors were healed");
    let mount = copy.mount("");
    let scrub = oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
    assert!(scrub.contains("no errors found"), "{scrub}");
}

#[track_caller]
fn profile(profile: Profile, devices: usize) {
    let image = image(profile, devices);
    let wanted = read_whole(&image);
    let borne = profile.tolerated_losses();
    if borne + 1 < devices {
        refuses_without(&image, &(0..=borne).collect::<Vec<_>>());
    }
    for losses in 1..=borne {
        reads_without_devices(&image, &wanted, losses);
        let hit = choices(devices, losses);
        let (first, last) = (&hit[0], &hit[hit.len() - 1]);
        heals(&image, &wanted, first);
        if first != last && losses == 1 {
            heals(&image, &wanted, last);
        }
    }
}

#[test]
fn single_and_raid0() {
    profile(Profile::Single, 1);
    profile(Profile::Single, 3);
    profile(Profile::Raid0, 3);
}

#[test]
fn raid1() {
    profile(Profile::Raid1, 2);
    profile(Profile::Raid1, 3);
}

#[test]
fn raid1c3() {
    profile(Profile::Raid1c3, 3);
}

#[test]
fn raid1c4() {
    profile(Profile::Raid1c4, 4);
}

#[test]
fn raid10() {
    profile(Profile::Raid10, 4);
    profile(Profile::Raid10, 6);
}

#[test]
fn raid5() {
    profile(Profile::Raid5, 2);
    profile(Profile::Raid5, 4);
}

#[test]
fn raid6() {
    profile(Profile::Raid6, 3);
    profile(Profile::Raid6, 5);
}

/// One copy of every chunk is garbage, first the first and then the second.
#[test]
fn dup() {
    let image = image(Profile::Dup, 1);
    let wanted = read_whole(&image);
    for hit in 0..2 {
        let copy = image.duplicate();
        for chunk in open(copy.devices(), &READ).chunks().iter() {
            let start = chunk.stripes()[hit].physical.0;
            scramble_range(&copy, start..start + chunk.bytes_per_stripe());
        }
        let volume = open(copy.devices(), &OpenOptions { write: true, ..READ });
        let found = Everything::read(&volume);
        assert_eq!(found, wanted);
        assert!(found.failures.healed > 5, "{:?}", found.failures);
        assert_eq!(Everything::read(&volume).failures.messages, [""; 0]);
    }
}

/// Inverts a range, except a superblock copy in it.
fn scramble_range(image: &KernelImage, range: std::ops::Range<u64>) {
    let file = &image.devices()[0];
    let copy = damage::SUPERBLOCK_OFFSETS[1];
    let invert = |range: std::ops::Range<u64>| {
        if !range.is_empty() {
            damage::invert(file, range).expect("it inverts");
        }
    };
    if range.contains(&copy) {
        invert(range.start..copy);
        invert(copy + 4096..range.end);
    } else {
        invert(range);
    }
}

#[test]
fn copies_match_the_chunk() {
    let image = image(Profile::Raid6, 5);
    let volume = open(image.devices(), &READ);
    let mut block = vec![0; volume.nodesize() as usize];
    let root = volume.superblock().root();
    assert_eq!(volume.copies(root), 5);
    let mut first = vec![0; block.len()];
    volume.read_copy(root, 0, &mut first).expect("it reads");
    for copy in 1..5 {
        volume.read_copy(root, copy, &mut block).expect("it is rebuilt");
        assert!(block == first, "copy {copy} differs");
    }
    let error = volume.read_copy(root, 5, &mut block).expect_err("there are 5");
    assert!(error.to_string().contains("no copy 5"), "{error}");
    assert_eq!(volume.copies(Logical(0)), 0);
}
