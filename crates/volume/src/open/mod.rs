//! Opening: from devices in any order to a volume.
//!
//! The newest superblock is the truth. Its system chunks lead to the chunk tree, and that to all
//! chunks and to the list of devices.

mod backup;
mod chunk_tree;
mod identify;
mod salvaged;
mod separate;
mod state;

use std::fmt;
use std::sync::Arc;

use larder_device::Device;
use larder_format::feature::FeatureError;
use larder_format::{FormatError, Logical, Superblock, Uuid};

use crate::chunk::{Chunk, ChunkError, ChunkMap};
use crate::member::VolumeDevice;
use crate::problem::ReadError;
use crate::rescue::Rescue;
use crate::scan::ScanError;
use crate::volume::{ReadPolicy, Volume};
use chunk_tree::ChunkTree;
use identify::GivenDevices;
pub use separate::UsedSeparately;

/// How to open a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// For writing. Devices, except seeds, must be writable.
    pub write: bool,
    /// Also when devices are missing, as long as every chunk can be read without them.
    pub degraded: bool,
    /// The superblock copy to use, in place of the newest sound one of each device.
    pub superblock_copy: Option<usize>,
    /// Also in a state that a superblock declares unfinished or that is unknown: for programs that
    /// show or check what is there, and for reading only.
    pub any_state: bool,
    /// Also when a device is shorter than the chunk tree says, as long as it has all stripes: for a
    /// repair that makes it say so.
    pub short_devices: bool,
    /// What to do without if the file system is damaged; except for an earlier commit of which the
    /// superblock has a backup, which is open for reading only.
    pub rescue: Rescue,
    /// An earlier commit, in place of the last one; for reading only.
    pub state: Option<StateRoot>,
    /// Which mirror is tried first.
    pub read_policy: ReadPolicy,
}

/// The root tree of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRoot {
    /// Address of its root.
    pub root: Logical,
    /// Level of its root.
    pub level: u8,
    /// The commit.
    pub generation: u64,
}

/// A device of the file system that was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingDevice {
    /// Id of the device.
    pub devid: u64,
    /// UUID of the device.
    pub uuid: Uuid,
}

impl fmt::Display for MissingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} with uuid {}", self.devid, self.uuid)
    }
}

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No devices were given.
    #[error("no devices were given")]
    NoDevices,
    /// A device has no sound superblock.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Two devices have the same id.
    #[error("{}", Duplicate { devid: *devid, first, second })]
    DuplicateDevice {
        /// The id.
        devid: u64,
        /// Name of the first.
        first: String,
        /// Name of the second.
        second: String,
    },
    /// A device belongs to another file system, or is no longer part of this one.
    #[error("{device}, device {devid} of {fsid}, is not a device of file system {wanted}")]
    ForeignDevice {
        /// Name of the device.
        device: String,
        /// Its id.
        devid: u64,
        /// The file system in its superblock.
        fsid: Uuid,
        /// The file system that is being opened.
        wanted: Uuid,
    },
    /// Each of two devices has commits that the other has not.
    #[error(transparent)]
    UsedSeparately(#[from] UsedSeparately),
    /// Devices are missing.
    #[error("{given}: missing: {}; {}", List(.missing), WithoutThem(*.can_do_without))]
    MissingDevices {
        /// Name of a device that was given.
        given: String,
        /// The missing devices.
        missing: Vec<MissingDevice>,
        /// Whether it can be opened degraded.
        can_do_without: bool,
    },
    /// Too many devices are missing.
    #[error(
        "{}, without {}; --rescue ignorebadroots reads what is left", NotEnough(.chunk),
        List(.missing)
    )]
    NotEnoughDevices {
        /// The first chunk that cannot be read completely.
        chunk: Arc<Chunk>,
        /// The missing devices.
        missing: Vec<MissingDevice>,
    },
    /// The file system has features that are not supported.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// The superblock forbids opening the file system.
    #[error("{device}: {state}")]
    State {
        /// Name of a device.
        device: String,
        /// The state that it is in.
        state: String,
    },
    /// The superblock allows reading only.
    #[error("{device}: {state}; it can be opened for reading only")]
    OnlyReading {
        /// Name of a device.
        device: String,
        /// The state that it is in.
        state: &'static str,
    },
    /// No block is left that a commit begins with.
    #[error(
        "{device}: no state of generation {generation} is left; 'larder rescue find-roots' lists \
         those that are"
    )]
    NoSuchState {
        /// Name of a device.
        device: String,
        /// The generation that was asked for.
        generation: u64,
    },
    /// A device cannot be written.
    #[error("{0} is open for reading only")]
    ReadOnlyDevice(String),
    /// A device is shorter than the chunk tree says.
    #[error("{device} has {len_bytes} bytes, the file system believes {wanted_bytes}")]
    ShortDevice {
        /// Name of the device.
        device: String,
        /// Its length in bytes.
        len_bytes: u64,
        /// Its length according to the chunk tree.
        wanted_bytes: u64,
    },
    /// The superblock's system chunk array is broken.
    #[error("system chunk array: {0}")]
    SystemChunks(#[source] FormatError),
    /// A chunk is invalid.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The chunk tree cannot be read.
    #[error("chunk tree: {0}")]
    ChunkTree(#[from] ReadError),
    /// The chunk tree contains an invalid item.
    #[error("chunk tree block at {logical}: {problem}")]
    ChunkTreeItem {
        /// The tree block.
        logical: Logical,
        /// The item, and what is wrong with it.
        problem: String,
    },
}

struct Duplicate<'a> {
    devid: u64,
    first: &'a str,
    second: &'a str,
}

impl fmt::Display for Duplicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { devid, first, second } = self;
        if first == second {
            return write!(f, "{first} is given twice");
        }
        write!(f, "{first} and {second} both are device {devid}: give one of them")
    }
}

struct List<'a>(&'a [MissingDevice]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, missing)| {
            write!(f, "{}{missing}", if index == 0 { "" } else { ", " })
        })
    }
}

/// The way out when devices are missing.
struct WithoutThem(bool);

impl fmt::Display for WithoutThem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 {
            "give them too, or open degraded (--degraded, -o degraded)"
        } else {
            "give them too: the others are not enough to read everything"
        })
    }
}

struct NotEnough<'a>(&'a Chunk);

impl fmt::Display for NotEnough<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (logical, profile) = (self.0.logical(), self.0.profile());
        let kind = self.0.flags().type_name();
        write!(f, "the chunk at {logical} ({kind}, {profile}) cannot be read")
    }
}

impl Volume {
    /// Opens a file system on these devices, given in any order, including those of its seeds.
    ///
    /// Devices whose superblock is older than the newest missed commits
    /// ([`Volume::stale_devices`]). They are written like the others, except for their superblocks.
    /// Content that may be out of date is read only if no other copy is good, and never without a
    /// checksum. A caller that opens for writing brings them up to date with [`Volume::refresh`],
    /// and then calls [`Volume::end_staleness`].
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, OpenError> {
        let found = GivenDevices::scan(devices, options.superblock_copy)?;
        let superblock = found.newest.clone();
        let name = found.name_of_newest().to_owned();
        let rescue = options.rescue;
        if options.write && rescue.is_for_reading() {
            let state = "what 'rescue' does without is needed for writing";
            return Err(OpenError::OnlyReading { device: name, state });
        }
        state::check(&superblock, &name, options)?;
        let system_chunks = system_chunks(&superblock)?;
        let mut provisional = Self::assemble(
            superblock,
            found.provisional(),
            system_chunks,
            false,
            options.read_policy,
        );
        provisional.rescue = rescue;
        let tree = ChunkTree::read(&provisional).map_err(|error| match error {
            // Without the devices that hold it, the chunk tree cannot say which are missing.
            OpenError::ChunkTree(error) => found.blame_missing(&provisional.chunks(), error),
            error => error,
        })?;
        let superblock = provisional.superblock();
        let (members, found_twin) = found.into_members(&tree.dev_items)?;
        let mut volume =
            Self::assemble(superblock, members, tree.chunks, options.write, options.read_policy);
        volume.rescue = rescue;
        volume.found_twin = found_twin;
        volume.check_devices(options)?;
        volume.check_same_root()?;
        if let Some(state) = &options.state {
            if options.write {
                let state = "an earlier state is never written";
                return Err(OpenError::OnlyReading { device: name, state });
            }
            volume.go_to(state);
        } else if rescue.use_backup_root && volume.use_backup_root() {
            let state =
                "the roots of its newest commit cannot be read, those of an earlier one can";
            let device = name;
            if options.write {
                return Err(OpenError::OnlyReading { device, state });
            }
            tracing::warn!(
                "{device}: {state}: it is shown as after generation {}",
                volume.superblock().generation
            );
        }
        volume.devices().iter().for_each(|device| report_weakness(device));
        Ok(volume)
    }

    fn check_devices(&self, options: &OpenOptions) -> Result<(), OpenError> {
        self.check_stripes()?;
        let devices = self.devices();
        let missing: Vec<MissingDevice> = devices
            .iter()
            .filter(|device| device.is_missing())
            .map(|device| MissingDevice { devid: device.devid(), uuid: device.uuid() })
            .collect();
        if !missing.is_empty() {
            let is_missing = |devid| missing.iter().any(|m| m.devid == devid);
            let chunks = self.chunks();
            let lost = chunks.iter().find(|c| !c.survives(|s| is_missing(s.devid))).cloned();
            if !options.degraded {
                let given = devices.iter().find(|device| !device.is_missing());
                let given = given.map(|device| device.name()).unwrap_or_default();
                let can_do_without = lost.is_none();
                return Err(OpenError::MissingDevices { given, missing, can_do_without });
            }
            if let Some(chunk) = lost.filter(|_| !self.rescue.ignore_bad_roots) {
                return Err(OpenError::NotEnoughDevices { chunk, missing });
            }
        }
        let mut written = devices.iter().filter(|_| options.write);
        written.try_for_each(|device| {
            let total_bytes = device.dev_item().total_bytes.get();
            let wanted = if options.short_devices { self.end_on(device) } else { total_bytes };
            check_writable(device, wanted)
        })
    }

    /// The end of the last stripe on a device.
    fn end_on(&self, device: &VolumeDevice) -> u64 {
        let chunks = self.chunks();
        let ends = chunks.iter().flat_map(|chunk| {
            let own = chunk.stripes().iter().filter(|stripe| stripe.devid == device.devid());
            own.map(|stripe| stripe.physical.0 + chunk.bytes_per_stripe())
        });
        ends.max().unwrap_or(0)
    }

    /// Checks that every stripe of every chunk lies on a device of the file system.
    fn check_stripes(&self) -> Result<(), OpenError> {
        let geometry = self.geometry();
        for chunk in geometry.chunks().iter() {
            let refuse = |problem| ChunkError { logical: chunk.logical(), problem };
            for stripe in chunk.stripes() {
                let device = geometry
                    .device(stripe.devid)
                    .filter(|device| device.uuid() == stripe.dev_uuid)
                    .ok_or_else(|| {
                        let (devid, uuid) = (stripe.devid, stripe.dev_uuid);
                        refuse(format!("there is no device {devid} with uuid {uuid}"))
                    })?;
                let end = stripe.physical.0 + chunk.bytes_per_stripe();
                let total_bytes = device.dev_item().total_bytes.get();
                if end > total_bytes {
                    let devid = stripe.devid;
                    let problem = format!(
                        "its stripe on device {devid} ends at {end}, the device at {total_bytes}"
                    );
                    return Err(refuse(problem).into());
                }
            }
        }
        Ok(())
    }
}

/// Reports a device that is missing or stale.
fn report_weakness(device: &VolumeDevice) {
    let (devid, name) = (device.devid(), device.name());
    if device.is_missing() {
        tracing::warn!("device {devid} ({}) is missing", device.uuid());
    } else if device.is_stale() {
        tracing::warn!("device {devid} ({name}) missed commits, and is not trusted");
    }
}

/// Checks that a device can be written, up to `wanted_bytes`.
fn check_writable(device: &VolumeDevice, wanted_bytes: u64) -> Result<(), OpenError> {
    let Some(backing) = device.written_to() else { return Ok(()) };
    if !backing.is_writable() {
        return Err(OpenError::ReadOnlyDevice(device.name()));
    }
    let len_bytes = backing.len_bytes();
    if len_bytes < wanted_bytes {
        return Err(OpenError::ShortDevice { device: device.name(), len_bytes, wanted_bytes });
    }
    Ok(())
}

fn system_chunks(superblock: &Superblock) -> Result<ChunkMap, OpenError> {
    let mut chunks = ChunkMap::new();
    for entry in superblock.system_chunks() {
        let (key, item) = entry.map_err(OpenError::SystemChunks)?;
        let logical = Logical(key.offset);
        chunks.insert(Chunk::from_item(logical, &item, superblock.sectorsize.get())?)?;
    }
    Ok(chunks)
}
