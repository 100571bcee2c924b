//! The volume: a file system's devices seen as one address space.

use std::sync::Arc;

use larder_format::{ChecksumType, Logical, Physical, Superblock, Uuid};
use larder_locks::RankedRwLock;
use larder_locks::rank::{GEOMETRY, LAST_SUPERBLOCK, VOLUME_WRITING};

use crate::chunk::{Chunk, ChunkMap, Content, DeviceAddress};
use crate::geometry::Geometry;
use crate::member::{FoundTwin, VolumeDevice};
use crate::problem::ReadError;
use crate::rescue::Rescue;
use crate::stand_ins::StandIns;
use crate::stats::VolumeStats;

/// Which mirror is tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Every region of address space has its own mirror, so that reads spread over the devices and
    /// each region is cached by one device only.
    #[default]
    Spread,
    /// The mirror on this device, if there is one.
    Prefer(u64),
}

/// The devices of a file system as one space of logical addresses. See the crate's invariants.
#[derive(Debug)]
pub struct Volume {
    /// That of the last commit. Replaced as a whole.
    pub(crate) superblock: RankedRwLock<Arc<Superblock>, LAST_SUPERBLOCK>,
    nodesize: u32,
    sectorsize: u32,
    checksum_type: ChecksumType,
    is_writable: bool,
    /// What readers do without.
    pub(crate) rescue: Rescue,
    /// Ids that headers of tree blocks may carry: the file system's, and those of its seeds.
    pub(crate) block_fsids: Vec<Uuid>,
    /// Blocks in the place of lost ones.
    pub(crate) stand_ins: Option<Arc<dyn StandIns>>,
    /// Was found beside the devices.
    pub(crate) found_twin: Option<FoundTwin>,
    /// Replaced as a whole, so that requests hold no lock while they use it.
    pub(crate) geometry: RankedRwLock<Arc<Geometry>, GEOMETRY>,
    /// Shared by writes, exclusive while content is copied that a write could change in place.
    pub(crate) writing: RankedRwLock<(), VOLUME_WRITING>,
}

/// A range that is contiguous on each device that holds it, as [`Volume::map`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// Its logical address.
    pub logical: Logical,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The addresses of its copies, one for each mirror.
    pub mirrors: Vec<DeviceAddress>,
    /// The addresses of its parity: P, then Q.
    pub parities: Vec<DeviceAddress>,
}

impl Volume {
    /// A writable volume of a new file system: `superblock` as it will be written, the devices, and
    /// the chunks. It does without no device, and without no copy.
    pub fn new(superblock: Box<Superblock>, devices: Vec<VolumeDevice>, chunks: ChunkMap) -> Self {
        let volume = Self::assemble(superblock, devices, chunks, true, ReadPolicy::default());
        volume.geometry().common.failures.tolerate_none();
        volume
    }

    pub(crate) fn assemble(
        superblock: impl Into<Arc<Superblock>>,
        devices: Vec<VolumeDevice>,
        chunks: ChunkMap,
        is_writable: bool,
        read_policy: ReadPolicy,
    ) -> Self {
        let superblock = superblock.into();
        let mut block_fsids = vec![superblock.metadata_uuid()];
        let seeds = devices.iter().filter(|device| device.is_seed);
        block_fsids.extend(seeds.map(|seed| seed.dev_item().fsid()));
        block_fsids.dedup();
        let geometry = Geometry::new(devices, chunks, is_writable, read_policy);
        geometry.common.failures.note_commit(superblock.generation.get());
        Self {
            nodesize: superblock.nodesize.get(),
            sectorsize: superblock.sectorsize.get(),
            checksum_type: superblock.checksum_type(),
            superblock: RankedRwLock::new(superblock),
            is_writable,
            rescue: Rescue::default(),
            block_fsids,
            stand_ins: None,
            found_twin: None,
            geometry: RankedRwLock::new(Arc::new(geometry)),
            writing: RankedRwLock::new(()),
        }
    }

    /// The superblock of the last commit: the one that [`Volume::write_superblocks`] wrote last, or
    /// that was found when the volume was opened.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.superblock.read().clone()
    }

    /// Bytes in a tree block.
    pub fn nodesize(&self) -> u32 {
        self.nodesize
    }

    /// Bytes in a sector, the unit of data.
    pub fn sectorsize(&self) -> u32 {
        self.sectorsize
    }

    /// The checksum algorithm.
    pub fn checksum_type(&self) -> ChecksumType {
        self.checksum_type
    }

    /// What its readers do without.
    pub fn rescue(&self) -> Rescue {
        self.rescue
    }

    /// Whether the volume is writable.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// The current chunks.
    pub fn chunks(&self) -> Arc<ChunkMap> {
        self.geometry.read().chunks().clone()
    }

    /// The chunk that contains `logical`.
    pub fn chunk_at(&self, logical: Logical) -> Option<Arc<Chunk>> {
        self.geometry.read().chunk_at(logical).cloned()
    }

    /// The current devices in order of their ids.
    pub fn devices(&self) -> Arc<[Arc<VolumeDevice>]> {
        self.geometry.read().devices().clone()
    }

    /// The device with this id.
    pub fn device(&self, devid: u64) -> Option<Arc<VolumeDevice>> {
        self.geometry.read().device(devid).cloned()
    }

    /// Devices that missed commits.
    pub fn stale_devices(&self) -> Vec<Arc<VolumeDevice>> {
        self.devices().iter().filter(|device| device.is_stale()).cloned().collect()
    }

    /// Whether any device has content of the chunk that is out of date.
    pub fn has_outdated(&self, chunk: &Chunk) -> bool {
        let geometry = self.geometry();
        chunk.stripes().iter().any(|stripe| geometry.is_outdated(chunk, stripe.devid))
    }

    /// The addresses of a range. In a striped chunk that is one entry for each 64 KiB.
    pub fn map(&self, logical: Logical, len_bytes: u64) -> Result<Vec<MappedRange>, ReadError> {
        let mut ranges = Vec::new();
        self.geometry().for_each_chunk(logical, len_bytes, |chunk, part, part_bytes| {
            ranges.extend(chunk.segments(part, part_bytes).map(|segment| {
                let parity =
                    |column| chunk.column_address(segment.row, column, segment.within_bytes);
                let columns = chunk.data_stripes()..chunk.stripes().len();
                MappedRange {
                    logical: segment.logical,
                    len_bytes: segment.len_bytes,
                    mirrors: chunk.addresses(&segment).collect(),
                    parities: columns.filter(|_| chunk.has_parity()).map(parity).collect(),
                }
            }));
            Ok::<_, ReadError>(())
        })?;
        Ok(ranges)
    }

    /// The content at an address of a device.
    pub fn contents_at(&self, devid: u64, physical: Physical) -> Vec<Content> {
        self.chunks().contents_at(devid, physical).collect()
    }

    /// The number of ways to read `logical` ([`Chunk::copies`]); 0 if no chunk contains it.
    pub fn copies(&self, logical: Logical) -> usize {
        self.chunk_at(logical).map_or(0, |chunk| chunk.copies())
    }

    /// Counters since the volume was opened.
    pub fn stats(&self) -> VolumeStats {
        let geometry = self.geometry();
        VolumeStats {
            healed: geometry.common.counters.healed.get(),
            rebuilt: geometry.common.counters.rebuilt.get(),
            unverified: geometry.common.counters.unverified.get(),
            devices: geometry.devices().iter().map(|d| d.counters.snapshot(d.devid())).collect(),
        }
    }
}
