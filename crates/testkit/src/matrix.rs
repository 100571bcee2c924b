//! The images for testing readers and checkers.
//!
//! [`matrix`] covers every on-disk shape that this kernel and mkfs.btrfs can make, in images that
//! are small enough for one test to build all of them. [`large`] adds those that need many entries
//! or extents.
//!
//! Unsupported by Linux 6.18 with btrfs-progs 6.2:
//! - *Block group tree*: the kernel mounts it, but this mkfs.btrfs has it only in experimental
//!   builds, and the kernel cannot convert. [`KernelImage::build_with`] fills such an image if
//!   another program formats it.
//! - *RAID stripe tree*, *extent tree v2*: the kernel has them only with
//!   `CONFIG_BTRFS_EXPERIMENTAL`.
//! - *Zoned*: the kernel is built without zoned block devices.
//! - *Verity items*: the kernel is built without fs-verity.
//! - *Sector sizes other than 4096*: "not yet supported for page size 4096".
//! - *Simple quotas*: not in this mkfs.btrfs or `btrfs quota`, but the kernel's ioctl switches them
//!   on; this `btrfs check` does not know the feature and refuses the image
//!   ([`ImageSpec::checkable`]).
//! - *RAID5 on two devices*: sound to the kernel's scrub, with either device missing too, but this
//!   `btrfs check --check-data-csum` rebuilds the second copy wrongly.
//!
//! [`KernelImage::build_with`]: crate::KernelImage::build_with

use crate::content::{Content, Scale};
use crate::image::{Checksum, Event, Feature, ImageSpec, Profile, Quota, SpaceCache};

const MIB: u64 = 1 << 20;

/// One image of the matrix.
#[derive(Clone, Debug)]
pub struct Case {
    /// The spec.
    pub spec: ImageSpec,
    /// The content.
    pub content: Content,
}

/// Every on-disk shape, small.
pub fn matrix() -> Vec<Case> {
    let specs =
        [nodes_and_checksums(), profiles(), compression(), features(), histories()].concat();
    (1..).zip(specs).map(|(seed, spec)| Case { spec, content: Content::new(seed) }).collect()
}

/// The directory of 100,000 entries with colliding names and the file of 20,000 extents.
pub fn large() -> Vec<Case> {
    let spec = |name: &str| ImageSpec::new(name).devices(&[1 << 30]);
    let specs = [spec("large"), spec("large-nodes-4k").node_size(4096)];
    (1..)
        .zip(specs)
        .map(|(seed, spec)| Case { spec, content: Content::new(seed).scale(Scale::Large) })
        .collect()
}

fn nodes_and_checksums() -> Vec<ImageSpec> {
    vec![
        ImageSpec::new("default"),
        ImageSpec::new("nodes-4k").node_size(4 << 10),
        ImageSpec::new("nodes-8k-xxhash").node_size(8 << 10).checksum(Checksum::Xxhash64),
        ImageSpec::new("nodes-64k").node_size(64 << 10),
        ImageSpec::new("xxhash").checksum(Checksum::Xxhash64),
        ImageSpec::new("sha256").checksum(Checksum::Sha256),
        ImageSpec::new("blake2").checksum(Checksum::Blake2b),
        ImageSpec::new("nodes-4k-sha256").node_size(4 << 10).checksum(Checksum::Sha256),
        ImageSpec::new("nodes-64k-blake2").node_size(64 << 10).checksum(Checksum::Blake2b),
    ]
}

fn profiles() -> Vec<ImageSpec> {
    let same = |profile: Profile, devices: usize| {
        ImageSpec::new(format!("{}-{devices}-devices", profile.name()))
            .devices(&vec![256 * MIB; devices])
            .profiles(profile, profile)
    };
    vec![
        same(Profile::Single, 1),
        same(Profile::Single, 3),
        same(Profile::Dup, 1),
        same(Profile::Raid0, 2),
        same(Profile::Raid0, 3),
        same(Profile::Raid1, 2),
        same(Profile::Raid1, 3),
        same(Profile::Raid1c3, 3),
        same(Profile::Raid1c4, 4),
        same(Profile::Raid10, 4),
        same(Profile::Raid10, 6),
        same(Profile::Raid5, 2),
        same(Profile::Raid5, 4),
        same(Profile::Raid6, 3),
        same(Profile::Raid6, 5),
        ImageSpec::new("raid6-data-raid1c3-metadata")
            .devices(&[256 * MIB; 4])
            .profiles(Profile::Raid6, Profile::Raid1c3),
        ImageSpec::new("raid1-unequal-devices")
            .devices(&[400 * MIB, 256 * MIB, 200 * MIB])
            .profiles(Profile::Raid1, Profile::Raid1),
        ImageSpec::new("mixed").devices(&[128 * MIB]).mixed().node_size(4 << 10),
        ImageSpec::new("mixed-raid1")
            .devices(&[128 * MIB; 2])
            .mixed()
            .node_size(4 << 10)
            .profiles(Profile::Raid1, Profile::Raid1),
    ]
}

fn compression() -> Vec<ImageSpec> {
    let with = |name: &str, option: &str| ImageSpec::new(name).mount_option(option);
    vec![
        with("zlib", "compress=zlib"),
        with("lzo", "compress=lzo"),
        with("zstd", "compress=zstd"),
        with("zlib-9-forced", "compress-force=zlib:9"),
        with("lzo-forced-nodes-64k", "compress-force=lzo").node_size(64 << 10),
        with("zstd-15-forced", "compress-force=zstd:15"),
        with("zstd-holes", "compress-force=zstd").without(Feature::NoHoles),
    ]
}

fn features() -> Vec<ImageSpec> {
    let with = |name: &str, option: &str| ImageSpec::new(name).mount_option(option);
    vec![
        ImageSpec::new("holes").without(Feature::NoHoles),
        ImageSpec::new("no-extref").without(Feature::ExtendedReferences),
        ImageSpec::new("no-skinny-metadata").without(Feature::SkinnyMetadata),
        ImageSpec::new("oldest")
            .without(Feature::NoHoles)
            .without(Feature::ExtendedReferences)
            .without(Feature::SkinnyMetadata)
            .space_cache(SpaceCache::Files),
        ImageSpec::new("v1-cache").space_cache(SpaceCache::Files),
        ImageSpec::new("no-cache").space_cache(SpaceCache::None),
        ImageSpec::new("quota").quota(Quota::Full),
        ImageSpec::new("simple-quota").quota(Quota::Simple),
        with("nodatacow", "nodatacow"),
        with("nodatasum", "nodatasum"),
        with("nothing-inline", "max_inline=0"),
        with("all-inline", "max_inline=4095"),
    ]
}

fn histories() -> Vec<ImageSpec> {
    use Event::{
        Balance, ChangeFsid, Convert, MissLastDevice, RemoveFirstDevice, ReplaceFirstDevice,
        SetDefault, Sprout,
    };
    let raid1 = |name: &str| {
        ImageSpec::new(name).devices(&[256 * MIB; 2]).profiles(Profile::Raid1, Profile::Raid1)
    };
    vec![
        ImageSpec::new("labelled").label("bread and butter").then(SetDefault("subvolumes/first")),
        ImageSpec::new("changed-fsid").then(ChangeFsid),
        ImageSpec::new("sprout").then(Sprout(256 * MIB)),
        ImageSpec::new("balanced").devices(&[512 * MIB]).then(Balance),
        ImageSpec::new("converted")
            .devices(&[300 * MIB; 3])
            .then(Convert(Profile::Raid5, Profile::Raid1)),
        ImageSpec::new("device-removed").devices(&[256 * MIB; 3]).then(RemoveFirstDevice),
        ImageSpec::new("device-replaced").devices(&[256 * MIB; 2]).then(ReplaceFirstDevice),
        raid1("device-out-of-date").then(MissLastDevice),
        ImageSpec::new("power-cut").power_cut(),
        raid1("power-cut-raid1").power_cut(),
        ImageSpec::new("power-cut-nodes-4k-zstd-holes")
            .node_size(4 << 10)
            .mount_option("compress=zstd")
            .without(Feature::NoHoles)
            .power_cut(),
    ]
}
