//! Damage of every kind, to plant in a sound image that the kernel made.

mod blocks;
mod checksums;
mod extents;
mod files;
mod space;
mod subvolumes;
mod superblocks;

use std::ffi::OsStr;

use crate::patient::Patient;
use larder_check::Kind;
use larder_testkit::{
    Content, Feature, ImageSpec, KernelImage, Profile, Quota, SpaceCache, command,
};

/// The image in which a wound is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// One device, with snapshots and all else.
    Plain,
    /// With extents for holes.
    Holes,
    /// With the v1 space cache.
    SpaceCache,
    /// With full quotas.
    Quota,
    /// With simple quotas.
    SimpleQuota,
    /// Two devices that mirror each other.
    Raid1,
    /// Three devices with parity.
    Raid5,
    /// The state after a power cut: a log, orphans and a partly deleted subvolume.
    PowerCut,
}

impl Base {
    /// All but the plain one.
    pub(crate) const OTHERS: [Self; 7] = [
        Self::Holes,
        Self::SpaceCache,
        Self::Quota,
        Self::SimpleQuota,
        Self::Raid1,
        Self::Raid5,
        Self::PowerCut,
    ];
}

/// Whether `btrfs check --check-data-csum` of btrfs-progs 6.2 reports the damage, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progs {
    Sees,
    DoesNot,
}

/// One damage.
pub(crate) struct Wound {
    pub(crate) name: &'static str,
    pub(crate) base: Base,
    pub(crate) kind: Kind,
    pub(crate) progs: Progs,
    pub(crate) plant: fn(&Patient),
}

/// A damage of the plain image.
pub(super) const fn plain(
    name: &'static str,
    kind: Kind,
    progs: Progs,
    plant: fn(&Patient),
) -> Wound {
    on(Base::Plain, name, kind, progs, plant)
}

/// A damage of another image.
pub(super) const fn on(
    base: Base,
    name: &'static str,
    kind: Kind,
    progs: Progs,
    plant: fn(&Patient),
) -> Wound {
    Wound { name, base, kind, progs, plant }
}

pub(crate) fn all_wounds() -> Vec<Wound> {
    let chapters = [
        superblocks::wounds(),
        blocks::wounds(),
        space::wounds(),
        extents::wounds(),
        files::wounds(),
        checksums::wounds(),
        subvolumes::wounds(),
    ];
    chapters.into_iter().flatten().collect()
}

pub(crate) fn image(base: Base) -> KernelImage {
    const DEVICE_BYTES: u64 = 256 << 20;
    let spec = ImageSpec::new(format!("{base:?}"));
    let small = spec.clone().node_size(4096);
    let devices = |spec: ImageSpec, count, profile| {
        spec.devices(&vec![DEVICE_BYTES; count]).profiles(profile, profile)
    };
    let spec = match base {
        Base::Plain => spec,
        Base::Holes => small.without(Feature::NoHoles),
        // The kernel keeps no cache of block groups below 100 MiB.
        Base::SpaceCache => spec.devices(&[4 << 30]).space_cache(SpaceCache::Files),
        Base::Quota => spec.quota(Quota::Full),
        Base::SimpleQuota => spec.quota(Quota::Simple),
        Base::Raid1 => devices(spec, 2, Profile::Raid1),
        Base::Raid5 => devices(spec, 3, Profile::Raid5),
        Base::PowerCut => small.power_cut(),
    };
    let image = KernelImage::build(&spec, &Content::new(5));
    if base == Base::Quota {
        // Deleting snapshots has made the counts inconsistent. On a busy machine it goes on.
        let mount = image.mount("");
        mount.finish_deletions();
        let rescan = ["quota", "rescan", "-w"].map(OsStr::new);
        command::run("btrfs", rescan.into_iter().chain([mount.path().as_os_str()]))
            .expect("the kernel counts again");
    }
    image
}
