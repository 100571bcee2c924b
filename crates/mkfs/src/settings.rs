//! Options, checked and completed: all decisions before the first byte is read.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use larder_format::block_group::BlockGroupFlags;
use larder_format::compression::Compression;
use larder_format::feature::{CompatRoFlags, IncompatFlags};
use larder_format::item::Timespec;
use larder_format::node::{HEADER_SIZE, ITEM_HEADER_SIZE};
use larder_format::superblock::LABEL_SIZE;
use larder_format::{ChecksumType, OwnerMap, Profile, SpaceKind, Uuid};

use crate::{Features, MkfsError, MkfsOptions, Owner};

/// The one transaction that makes everything.
pub(crate) const GENERATION: u64 = 1;
/// The largest and the smallest tree block, and the smallest sector.
const MAX_BLOCK_BYTES: u32 = 64 * 1024;
const MIN_BLOCK_BYTES: u32 = 4096;
const DEFAULT_NODE_BYTES: u32 = 16 * 1024;
/// Files of at most this many bytes, as stored, are inline, as with the default of the kernel's
/// mount option `max_inline`.
pub(crate) const MAX_INLINE_BYTES: usize = 2048;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) node_size: usize,
    pub(crate) sector_size: usize,
    pub(crate) checksum: ChecksumType,
    pub(crate) features: Features,
    pub(crate) data_profile: Profile,
    pub(crate) metadata_profile: Profile,
    pub(crate) label: String,
    pub(crate) fsid: Uuid,
    pub(crate) device_uuids: Vec<Uuid>,
    pub(crate) compression: Option<Compression>,
    pub(crate) owner_map: OwnerMap,
    pub(crate) owner: Option<Owner>,
    /// The time of making the file system.
    pub(crate) now: Timespec,
    /// Whether times of the source after `now` are set back to it.
    pub(crate) clamp_times: bool,
    pub(crate) shrink: bool,
    pub(crate) threads: NonZeroUsize,
}

impl Settings {
    /// Checks options for this number of devices and fills in the defaults.
    pub(crate) fn resolve(options: &MkfsOptions, medium: Medium) -> Result<Self, MkfsError> {
        let mut features = options.features.resolve()?;
        features.set(
            Features::MIXED_GROUPS,
            options.mixed || features.contains(Features::MIXED_GROUPS),
        );
        let mixed = features.contains(Features::MIXED_GROUPS);
        let (data_profile, metadata_profile) = profiles(options, mixed, medium)?;
        for profile in [data_profile, metadata_profile] {
            match profile {
                Profile::Raid5 | Profile::Raid6 => features |= Features::RAID56,
                Profile::Raid1c3 | Profile::Raid1c4 => features |= Features::RAID1C34,
                _ => {}
            }
        }
        let (node_size, sector_size) = sizes(options, mixed)?;
        check_label(&options.label)?;
        if options.root_dir.is_none() {
            let needs_root_dir =
                options.shrink || options.compression.is_some() || !options.subvolumes.is_empty();
            if needs_root_dir {
                let problem = "shrinking, compressing and subvolumes need a root directory";
                return Err(MkfsError::invalid(problem));
            }
        }
        let device_uuid = options.device_uuid.unwrap_or_else(Uuid::new_v4);
        let derived =
            (2..=medium.devices).map(|devid| derive_uuid(device_uuid, &format!("device {devid}")));
        Ok(Self {
            node_size,
            sector_size,
            checksum: options.checksum,
            features,
            data_profile,
            metadata_profile,
            label: options.label.clone(),
            fsid: options.uuid.unwrap_or_else(Uuid::new_v4),
            device_uuids: std::iter::once(device_uuid).chain(derived).collect(),
            compression: options.compression,
            owner_map: options.owner_map.clone(),
            owner: options.owner,
            now: options
                .source_date_epoch
                .map_or_else(larder_device::now, |seconds| (seconds, 0))
                .into(),
            clamp_times: options.source_date_epoch.is_some(),
            shrink: options.shrink,
            threads: options.threads.unwrap_or_else(larder_parallel::threads),
        })
    }

    pub(crate) fn has(&self, features: Features) -> bool {
        self.features.contains(features)
    }

    /// The flags for incompatible features, except those that depend on the content.
    pub(crate) fn incompat_flags(&self) -> IncompatFlags {
        self.features.incompat()
    }

    pub(crate) fn compat_ro_flags(&self) -> CompatRoFlags {
        self.features.compat_ro()
    }

    /// Type of block groups.
    pub(crate) fn block_group_types(&self, usage: SpaceKind) -> BlockGroupFlags {
        usage.types(self.has(Features::MIXED_GROUPS))
    }

    /// Type and profile of block groups.
    pub(crate) fn block_group_flags(&self, usage: SpaceKind) -> BlockGroupFlags {
        self.block_group_types(usage) | self.profile(usage).flags()
    }

    /// Profile of block groups.
    pub(crate) fn profile(&self, usage: SpaceKind) -> Profile {
        match usage {
            SpaceKind::Data => self.data_profile,
            SpaceKind::System | SpaceKind::Metadata => self.metadata_profile,
        }
    }

    /// The use for data: metadata with mixed groups.
    pub(crate) fn data_use(&self) -> SpaceKind {
        if self.has(Features::MIXED_GROUPS) { SpaceKind::Metadata } else { SpaceKind::Data }
    }

    /// Bytes of the largest item that fits a leaf.
    pub(crate) fn max_item_size(&self) -> usize {
        self.node_size - HEADER_SIZE - ITEM_HEADER_SIZE
    }

    /// A uuid derived from the file system's.
    pub(crate) fn derived_uuid(&self, purpose: &str) -> Uuid {
        derive_uuid(self.fsid, purpose)
    }
}

/// What a file system is made on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medium {
    devices: usize,
    /// Whether the devices keep copies of their own, so that a second one would only cost requests.
    keeps_copies: bool,
}

impl Medium {
    pub(crate) fn of(devices: usize) -> Self {
        Self { devices, keeps_copies: false }
    }

    pub(crate) fn of_targets(targets: &[PathBuf]) -> Self {
        let is_url = |target: &PathBuf| larder_objects::is_url(target.as_os_str());
        Self { devices: targets.len(), keeps_copies: targets.iter().all(is_url) }
    }

    /// The profile of metadata unless the caller chooses one.
    fn metadata_profile(self) -> Profile {
        match self.devices {
            _ if self.keeps_copies => Profile::Single,
            1 => Profile::Dup,
            _ => Profile::Raid1,
        }
    }
}

fn profiles(
    options: &MkfsOptions,
    mixed: bool,
    medium: Medium,
) -> Result<(Profile, Profile), MkfsError> {
    let metadata = options.metadata_profile;
    let (data, metadata) = if mixed {
        let profile = options.data_profile.or(metadata).unwrap_or(Profile::Single);
        (profile, metadata.unwrap_or(profile))
    } else {
        let metadata = metadata.unwrap_or(medium.metadata_profile());
        (options.data_profile.unwrap_or(Profile::Single), metadata)
    };
    if mixed && data != metadata {
        let problem = format!("mixed groups have one profile, not {data} and {metadata}");
        return Err(MkfsError::invalid(problem));
    }
    for profile in [data, metadata] {
        let needed = profile.shape().min_devices;
        if medium.devices < needed {
            return Err(MkfsError::TooFewDevices { profile, needed, given: medium.devices });
        }
    }
    Ok((data, metadata))
}

fn sizes(options: &MkfsOptions, mixed: bool) -> Result<(usize, usize), MkfsError> {
    let sector = options.sector_size_bytes;
    let default_node = if mixed { sector } else { sector.max(DEFAULT_NODE_BYTES) };
    let node = options.node_size_bytes.unwrap_or(default_node);
    let possible = |bytes: u32| {
        bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes)
    };
    let problem = if !possible(sector) {
        format!("sector size {sector} is not a power of two between 4096 and 65536")
    } else if !possible(node) {
        format!("node size {node} is not a power of two between 4096 and 65536")
    } else if node < sector {
        format!("node size {node} is less than the sector size {sector}")
    } else if mixed && node != sector {
        format!("with mixed groups the node size {node} must be the sector size {sector}")
    } else {
        return Ok((node as usize, sector as usize));
    };
    Err(MkfsError::InvalidOptions(problem))
}

fn check_label(label: &str) -> Result<(), MkfsError> {
    if label.len() >= LABEL_SIZE {
        let problem =
            format!("the label has {} bytes, at most {} fit", label.len(), LABEL_SIZE - 1);
        return Err(MkfsError::InvalidOptions(problem));
    }
    if label.contains(['\n', '\0']) {
        return Err(MkfsError::invalid("the label contains a newline or a zero"));
    }
    Ok(())
}

/// A random-looking uuid (version 4), determined by `seed` and `purpose`.
fn derive_uuid(seed: Uuid, purpose: &str) -> Uuid {
    let digest = ChecksumType::Sha256.compute(&[seed.as_bytes(), purpose.as_bytes()].concat());
    let bytes = digest.as_bytes().first_chunk().expect("a digest has 32 bytes");
    uuid::Builder::from_random_bytes(*bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(devices: usize, change: impl Fn(&mut MkfsOptions)) -> Result<Settings, MkfsError> {
        let mut options = MkfsOptions::default();
        change(&mut options);
        Settings::resolve(&options, Medium::of(devices))
    }

    #[test]
    fn defaults_depend_on_the_number_of_devices() {
        let one = resolve(1, |_| {}).unwrap();
        assert_eq!((one.data_profile, one.metadata_profile), (Profile::Single, Profile::Dup));
        assert_eq!((one.node_size, one.sector_size), (16384, 4096));
        let three = resolve(3, |_| {}).unwrap();
        assert_eq!((three.data_profile, three.metadata_profile), (Profile::Single, Profile::Raid1));
        let mixed = resolve(1, |options| options.mixed = true).unwrap();
        assert_eq!(
            (mixed.data_profile, mixed.metadata_profile),
            (Profile::Single, Profile::Single)
        );
        assert_eq!(mixed.node_size, 4096);
        let objects = Medium::of_targets(&["s3://bucket/disk".into()]);
        let objects = Settings::resolve(&MkfsOptions::default(), objects).unwrap();
        assert_eq!(objects.metadata_profile, Profile::Single);
    }

    #[test]
    fn invalid_options_are_refused() {
        let refused = |change: fn(&mut MkfsOptions)| resolve(2, change).unwrap_err().to_string();
        assert!(refused(|o| o.node_size_bytes = Some(5000)).contains("node size 5000"));
        assert!(refused(|o| o.node_size_bytes = Some(131_072)).contains("node size 131072"));
        assert!(refused(|o| o.sector_size_bytes = 512).contains("sector size 512"));
        assert!(refused(|o| o.label = "x".repeat(256)).contains("256 bytes"));
        assert!(refused(|o| o.label = "a\nb".into()).contains("newline"));
        assert!(refused(|o| o.data_profile = Some(Profile::Raid6)).contains("at least 3 devices"));
        assert!(refused(|o| o.shrink = true).contains("root directory"));
        let mixed = |o: &mut MkfsOptions| {
            (o.mixed, o.data_profile, o.metadata_profile) =
                (true, Some(Profile::Raid0), Some(Profile::Raid1));
        };
        assert!(refused(mixed).contains("one profile"));
    }

    #[test]
    fn uuids_follow_from_those_given() {
        let make = || {
            resolve(3, |options| {
                options.uuid = Some(Uuid::from_u128(1));
                options.device_uuid = Some(Uuid::from_u128(2));
            })
            .unwrap()
        };
        let (one, two) = (make(), make());
        assert_eq!(one.device_uuids, two.device_uuids);
        assert_eq!(one.device_uuids[0], Uuid::from_u128(2));
        assert_ne!(one.device_uuids[1], one.device_uuids[2]);
        assert_eq!(one.derived_uuid("x"), two.derived_uuid("x"));
        assert_ne!(one.derived_uuid("x"), one.derived_uuid("y"));
    }
}
