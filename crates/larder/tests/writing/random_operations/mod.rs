//! Round trips on every profile that can be written, and on other shapes: the kernel changes a file
//! system, Larder changes it, the kernel scrubs it, again and again, with random operations. A twin
//! on which the kernel alone does the same shows the expected result.
//!
//! `LARDER_EFFORT` multiplies the number of rounds, and `LARDER_SEED` makes others.

mod forgotten;
mod names;
mod operations;

use larder::{CompressionAlgorithm, OpenOptions, WriteCompression};
use larder_testkit::manifest::Body;
use larder_testkit::{
    Content, Feature, ImageSpec, KernelImage, Manifest, Profile, Scale, assert_same, oracle,
};
use operations::{OPERATIONS, Outcome, RandomOperations};

use super::actors::{Kernel, Larder};
use super::{check, support};

/// The parts of a file system that two twins share: not times, nor numbers, some of which a refused
/// call uses up, nor addresses of data.
fn in_common(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        (entry.atime, entry.mtime, entry.ctime, entry.otime) = Default::default();
        (entry.inode, entry.subvolume, entry.allocated_bytes) = (0, 0, 0);
        if let Body::File { data, .. } = &mut entry.body {
            data.clear();
        }
    }
    manifest
}

/// Goes back and forth on an image of this kind. If data is compressed, both sides force it: they
/// need not agree about what is worth it.
fn round_trips(spec: &ImageSpec, compresses: bool, seed: u64) {
    let seed = larder_testkit::seed(seed);
    let content = Content::new(seed).scale(Scale::Small);
    let image = KernelImage::build(spec, &content);
    let twin = KernelImage::build(spec, &content);
    let options = if compresses { "noatime,compress-force=zstd" } else { "noatime" };
    let compression = compresses
        .then(|| WriteCompression { compression: CompressionAlgorithm::Zstd.into(), force: true });
    let open = OpenOptions::new().write(true).compression(compression);
    let (mut on_twin, mut on_image) = (RandomOperations::default(), RandomOperations::default());
    let mut done = 0;
    let rounds = 2 * larder_testkit::effort();
    for round in 0..rounds {
        let seeds = [seed * 1000 + round * 2, seed * 1000 + round * 2 + 1];
        let expected = {
            let mount = twin.mount(options);
            seeds.map(|seed| on_twin.do_by(&Kernel(mount.path()), seed))
        };
        let by_kernel = {
            let mount = image.mount(options);
            on_image.do_by(&Kernel(mount.path()), seeds[0])
        };
        done += compare(&by_kernel, &expected[0], "the kernel");
        let fs = open.open(image.devices()).unwrap();
        let by_larder = on_image.do_by(&Larder(fs.subvolume("/").unwrap()), seeds[1]);
        done += compare(&by_larder, &expected[1], "larder");
        fs.sync().unwrap();
        let seen = in_common(support::manifest(&fs));
        drop(fs);
        check(&image, &format!("round {round}"));
        let mount = image.mount("noatime");
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let of_kernel = in_common(Manifest::of_tree(mount.path()));
        assert_same(&of_kernel, &seen);
        let twin = twin.mount("ro,noatime");
        assert_same(&in_common(Manifest::of_tree(twin.path())), &of_kernel);
    }
    println!("{}: {rounds} rounds, {done} operations done on each image", spec.name());
}

/// Each operation is done by both sides or refused by both. Returns how many were done.
fn compare(seen: &[Outcome], expected: &[Outcome], by: &str) -> usize {
    for ((what, seen), (expected_what, expected)) in seen.iter().zip(expected) {
        // Shown if this fails.
        println!("by {by}: {what}: {seen:?}");
        assert_eq!(what, expected_what, "by {by}");
        assert_eq!(seen.is_ok(), expected.is_ok(), "by {by}: {what}: {seen:?}, {expected:?}");
    }
    assert_eq!(seen.len(), expected.len());
    let done = seen.iter().filter(|(_, done)| done.is_ok()).count();
    assert!(done > OPERATIONS * 3 / 5, "{done} of {}", seen.len());
    done
}

/// Devices that are large enough for all copies of everything.
fn spec(name: &str, profile: Profile, devices: usize) -> ImageSpec {
    ImageSpec::new(name).devices(&vec![768 << 20; devices]).profiles(profile, profile)
}

#[test]
fn single() {
    round_trips(&spec("single", Profile::Single, 1), false, 101);
}

#[test]
fn dup() {
    round_trips(&spec("dup", Profile::Dup, 1), false, 102);
}

#[test]
fn raid0() {
    round_trips(&spec("raid0", Profile::Raid0, 2), false, 103);
}

#[test]
fn raid1() {
    round_trips(&spec("raid1", Profile::Raid1, 2), false, 104);
}

#[test]
fn raid1c3() {
    round_trips(&spec("raid1c3", Profile::Raid1c3, 3), false, 105);
}

#[test]
fn raid1c4() {
    round_trips(&spec("raid1c4", Profile::Raid1c4, 4), false, 106);
}

#[test]
fn raid10() {
    round_trips(&spec("raid10", Profile::Raid10, 4), false, 107);
}

#[test]
fn compressed_on_small_nodes_with_items_for_holes() {
    let spec = spec("compressed", Profile::Single, 1).node_size(4096).without(Feature::NoHoles);
    round_trips(&spec, true, 108);
}

#[test]
fn large_nodes() {
    round_trips(&spec("nodes-64k", Profile::Dup, 1).node_size(64 << 10), true, 109);
}

#[test]
fn mixed_groups() {
    let spec = ImageSpec::new("mixed").devices(&[768 << 20]).mixed().node_size(4096);
    round_trips(&spec, false, 110);
}
