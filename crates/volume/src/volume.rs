//! The volume: a file system's devices seen as one address space.

use std::sync::Arc;

use larder_format::{ChecksumType, Logical, Physical, Superblock, Uuid};
use parking_lot::RwLock;

use crate::chunk::{Chunk, ChunkError, ChunkMap, Content, DeviceAddress};
use crate::member::VolumeDevice;
use crate::members::Members;
use crate::problem::{ReadError, Unmapped};
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
    pub(crate) superblock: Box<Superblock>,
    /// Ids that headers of tree blocks may carry: the file system's, and those of its seeds.
    pub(crate) block_fsids: Vec<Uuid>,
    pub(crate) members: Members,
    /// Replaced as a whole, so that readers hold no lock while they use it.
    pub(crate) chunks: RwLock<Arc<ChunkMap>>,
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
    /// the chunks.
    pub fn new(superblock: Box<Superblock>, devices: Vec<VolumeDevice>, chunks: ChunkMap) -> Self {
        Self::assemble(superblock, devices, chunks, true, ReadPolicy::default())
    }

    pub(crate) fn assemble(
        superblock: Box<Superblock>,
        devices: Vec<VolumeDevice>,
        chunks: ChunkMap,
        is_writable: bool,
        read_policy: ReadPolicy,
    ) -> Self {
        let members = Members::new(devices, is_writable, read_policy);
        let mut block_fsids = vec![superblock.metadata_uuid()];
        block_fsids
            .extend(members.devices().iter().filter(|d| d.is_seed).map(|d| d.dev_item.fsid()));
        block_fsids.dedup();
        Self { superblock, block_fsids, members, chunks: RwLock::new(Arc::new(chunks)) }
    }

    /// The superblock as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes in a tree block.
    pub fn nodesize(&self) -> u32 {
        self.superblock.nodesize.get()
    }

    /// Bytes in a sector, the unit of data.
    pub fn sectorsize(&self) -> u32 {
        self.superblock.sectorsize.get()
    }

    /// The checksum algorithm.
    pub fn checksum_type(&self) -> ChecksumType {
        self.superblock.checksum_type()
    }

    /// Whether the volume is writable.
    pub fn is_writable(&self) -> bool {
        self.members.is_writable
    }

    /// The current chunks.
    pub fn chunks(&self) -> Arc<ChunkMap> {
        self.chunks.read().clone()
    }

    /// The chunk that contains `logical`.
    pub fn chunk_at(&self, logical: Logical) -> Option<Arc<Chunk>> {
        self.chunks.read().get(logical).cloned()
    }

    /// Adds a new chunk.
    pub fn add_chunk(&self, chunk: Chunk) -> Result<(), ChunkError> {
        Arc::make_mut(&mut self.chunks.write()).insert(chunk)
    }

    /// Removes the chunk that starts at `logical`.
    pub fn remove_chunk(&self, logical: Logical) -> Option<Arc<Chunk>> {
        Arc::make_mut(&mut self.chunks.write()).remove(logical)
    }

    /// The devices in order of their ids.
    pub fn devices(&self) -> &[VolumeDevice] {
        self.members.devices()
    }

    /// The device with this id.
    pub fn device(&self, devid: u64) -> Option<&VolumeDevice> {
        self.members.device(devid)
    }

    /// Devices that missed commits.
    pub fn stale_devices(&self) -> impl Iterator<Item = &VolumeDevice> {
        self.devices().iter().filter(|device| device.is_stale())
    }

    /// Whether any device has content of the chunk that is out of date.
    pub fn has_outdated(&self, chunk: &Chunk) -> bool {
        chunk.stripes().iter().any(|stripe| self.members.is_outdated(chunk, stripe.devid))
    }

    /// Marks devices that missed commits as up to date, also in the next superblocks. The caller
    /// has brought their content up to date, and made it durable.
    pub fn end_staleness(&self) {
        self.devices().iter().for_each(VolumeDevice::end_staleness);
    }

    /// The addresses of a range. In a striped chunk that is one entry for each 64 KiB.
    pub fn map(&self, logical: Logical, len_bytes: u64) -> Result<Vec<MappedRange>, ReadError> {
        let mut ranges = Vec::new();
        self.for_each_chunk(logical, len_bytes, |chunk, part, part_bytes| {
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
        VolumeStats {
            healed: self.members.counters.healed.get(),
            rebuilt: self.members.counters.rebuilt.get(),
            devices: self.devices().iter().map(|d| d.counters.snapshot(d.devid())).collect(),
        }
    }

    /// The chunk that contains the whole of a range.
    pub(crate) fn chunk_of(
        &self,
        logical: Logical,
        len_bytes: u64,
    ) -> Result<Arc<Chunk>, Unmapped> {
        self.chunk_at(logical)
            .filter(|chunk| len_bytes <= chunk.end().0 - logical.0)
            .ok_or(Unmapped { logical, len_bytes })
    }

    /// Calls `visit` with the parts of a range that lie in one chunk each, in order.
    pub(crate) fn for_each_chunk<E: From<Unmapped>>(
        &self,
        logical: Logical,
        len_bytes: u64,
        mut visit: impl FnMut(&Chunk, Logical, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut left) = (logical, len_bytes);
        while left > 0 {
            let chunk = self.chunk_at(at).ok_or(Unmapped { logical: at, len_bytes: 1 })?;
            let part_bytes = left.min(chunk.end().0 - at.0);
            visit(&chunk, at, part_bytes)?;
            at = chunk.end();
            left -= part_bytes;
        }
        Ok(())
    }
}
