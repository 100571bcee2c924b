//! The specs of images.

use super::Event;

/// The checksum of tree blocks and data (`--csum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// xxHash64, 8 bytes.
    Xxhash64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with 32 bytes.
    Blake2b,
}

impl Checksum {
    /// Its name in mkfs.btrfs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2",
        }
    }
}

/// The distribution of block groups over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// Striped, no redundancy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Stripes of mirrored pairs.
    Raid10,
    /// Stripes with one parity.
    Raid5,
    /// Stripes with two parities.
    Raid6,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Dup,
        Self::Raid0,
        Self::Raid1,
        Self::Raid1c3,
        Self::Raid1c4,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
    ];

    /// Its name in mkfs.btrfs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "dup",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid1c3 => "raid1c3",
            Self::Raid1c4 => "raid1c4",
            Self::Raid10 => "raid10",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
        }
    }

    /// The number of devices that may be missing or corrupt without losing data.
    pub fn tolerated_losses(self) -> usize {
        match self {
            Self::Single | Self::Dup | Self::Raid0 => 0,
            Self::Raid1 | Self::Raid10 | Self::Raid5 => 1,
            Self::Raid1c3 | Self::Raid6 => 2,
            Self::Raid1c4 => 3,
        }
    }
}

/// A format feature that is on by default in mkfs.btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Holes have no file extent items.
    NoHoles,
    /// INODE_EXTREF items for names that do not fit an INODE_REF.
    ExtendedReferences,
    /// METADATA_ITEM in place of EXTENT_ITEM for tree blocks.
    SkinnyMetadata,
}

impl Feature {
    fn name(self) -> &'static str {
        match self {
            Self::NoHoles => "no-holes",
            Self::ExtendedReferences => "extref",
            Self::SkinnyMetadata => "skinny-metadata",
        }
    }
}

/// The record of free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceCache {
    /// In the free space tree (v2).
    Tree,
    /// In hidden files, one for each block group (v1).
    Files,
    /// Nowhere.
    None,
}

/// Accounting by subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// None.
    Off,
    /// Full: shared and exclusive, by back references.
    Full,
    /// Simple: the owner of each extent is charged (`EXTENT_OWNER_REF`).
    Simple,
}

/// How much of a sound image the `btrfs check` of btrfs-progs 6.2 can judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkable {
    /// It refuses the image, since it does not know simple quotas.
    Nothing,
    /// It rebuilds the second copy of data wrongly for RAID5 on two devices.
    Metadata,
    /// Everything.
    All,
}

/// The spec of an image: the options of mkfs.btrfs, of the mount under which it is filled, and
/// events around both. Each method returns the changed spec.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) device_lens_bytes: Vec<u64>,
    pub(super) node_size_bytes: u32,
    pub(super) checksum: Checksum,
    pub(super) data: Option<Profile>,
    pub(super) metadata: Option<Profile>,
    pub(super) mixed: bool,
    pub(super) without: Vec<Feature>,
    pub(super) space_cache: SpaceCache,
    pub(super) quota: Quota,
    pub(super) mount_options: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) power_cut: bool,
}

impl ImageSpec {
    /// One device of 256 MiB, 16 KiB nodes, CRC-32C, and the defaults of mkfs.btrfs for the rest.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            label: String::new(),
            device_lens_bytes: vec![256 << 20],
            node_size_bytes: 16 << 10,
            checksum: Checksum::Crc32c,
            data: None,
            metadata: None,
            mixed: false,
            without: Vec::new(),
            space_cache: SpaceCache::Tree,
            quota: Quota::Off,
            mount_options: Vec::new(),
            events: Vec::new(),
            power_cut: false,
        }
    }

    /// The name of the image in messages of tests.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The label of the file system.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The lengths of the devices, which need not be equal.
    #[must_use]
    pub fn devices(mut self, lens_bytes: &[u64]) -> Self {
        self.device_lens_bytes = lens_bytes.to_vec();
        self
    }

    /// Node size of all trees.
    #[must_use]
    pub fn node_size(mut self, node_size_bytes: u32) -> Self {
        self.node_size_bytes = node_size_bytes;
        self
    }

    /// Checksum of tree blocks and data.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// Profiles of data and of metadata.
    #[must_use]
    pub fn profiles(mut self, data: Profile, metadata: Profile) -> Self {
        self.data = Some(data);
        self.metadata = Some(metadata);
        self
    }

    /// Data and metadata share block groups.
    #[must_use]
    pub fn mixed(mut self) -> Self {
        self.mixed = true;
        self
    }

    /// Leaves a default feature off.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Self {
        self.without.push(feature);
        self
    }

    /// The record of free space.
    #[must_use]
    pub fn space_cache(mut self, space_cache: SpaceCache) -> Self {
        self.space_cache = space_cache;
        self
    }

    /// Accounting by subvolume, switched on before the image is filled.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = quota;
        self
    }

    /// One more option for the mount under which the image is filled, such as `compress=zstd`.
    #[must_use]
    pub fn mount_option(mut self, option: impl Into<String>) -> Self {
        self.mount_options.push(option.into());
        self
    }

    /// The next event, after the filling and earlier events.
    #[must_use]
    pub fn then(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Leaves the image as after a power cut after the filling: mounted, with a log tree, orphans
    /// and a subvolume that is partly deleted. Cannot be combined with events.
    #[must_use]
    pub fn power_cut(mut self) -> Self {
        self.power_cut = true;
        self
    }

    /// The profile of data block groups if one was given.
    pub fn data_profile(&self) -> Option<Profile> {
        self.data
    }

    /// The profile of metadata block groups if one was given.
    pub fn metadata_profile(&self) -> Option<Profile> {
        self.metadata
    }

    /// How much of the image the `btrfs check` of btrfs-progs 6.2 can judge.
    pub fn checkable(&self) -> Checkable {
        let two_device_raid5 =
            self.data == Some(Profile::Raid5) && self.device_lens_bytes.len() == 2;
        if self.quota == Quota::Simple {
            Checkable::Nothing
        } else if two_device_raid5 {
            Checkable::Metadata
        } else {
            Checkable::All
        }
    }

    /// Whether the image is left as after a power cut.
    pub fn is_power_cut(&self) -> bool {
        self.power_cut
    }

    /// The arguments of mkfs.btrfs, without the devices.
    pub(super) fn mkfs_arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--quiet".to_owned(), "--force".to_owned()];
        let mut option = |name: &str, value: String| {
            arguments.push(name.to_owned());
            arguments.push(value);
        };
        option("--nodesize", self.node_size_bytes.to_string());
        option("--csum", self.checksum.name().to_owned());
        if !self.label.is_empty() {
            option("--label", self.label.clone());
        }
        if let Some(profile) = self.data {
            option("--data", profile.name().to_owned());
        }
        if let Some(profile) = self.metadata {
            option("--metadata", profile.name().to_owned());
        }
        for feature in &self.without {
            option("--features", format!("^{}", feature.name()));
        }
        if self.space_cache != SpaceCache::Tree {
            option("--runtime-features", "^free-space-tree".to_owned());
        }
        if self.quota == Quota::Full {
            option("--runtime-features", "quota".to_owned());
        }
        if self.mixed {
            arguments.push("--mixed".to_owned());
        }
        arguments
    }

    /// The options of the mount under which the image is filled.
    pub fn filling_options(&self) -> String {
        let mut options = self.mount_options.clone();
        match self.space_cache {
            SpaceCache::Tree => {}
            SpaceCache::Files => options.push("space_cache=v1".to_owned()),
            SpaceCache::None => options.push("nospace_cache".to_owned()),
        }
        if self.power_cut {
            // No commit between the last fsync and the copy, or the log tree would be gone.
            options.push("commit=300".to_owned());
        }
        options.join(",")
    }
}
