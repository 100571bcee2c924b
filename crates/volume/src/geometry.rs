//! The geometry of a volume: which devices there are, and which chunks lie on them.
//!
//! # Invariants
//! - A geometry does not change once a thread can see it. A thread that adds, removes or replaces a
//!   chunk or a device makes the next geometry and puts it in the place of the current one
//!   ([`Volume::change_geometry`]), one thread at a time. There is no other way.
//! - A request takes the current geometry when it begins, and uses no other until it ends: all its
//!   parts agree on which chunks and devices there are.
//! - A request that began on an earlier geometry may still read and write where that one says,
//!   after it was replaced. Its devices stay open, and its chunks stay known, until the last such
//!   request ends and drops it. So a thread that gives an address of a device to other content
//!   first makes sure that no request is under way that uses the address: the owner of the space
//!   does that with block groups and transactions, since the volume does not know who reads.
//! - A device is one [`VolumeDevice`] in all geometries that have it, so that its counters, errors
//!   and staleness are the same for all requests.
//! - A flush and the writing of superblocks are requests like others: they reach the devices of the
//!   geometry that is current when they begin. Any write that returned before went to one of
//!   these, or to a device that was removed since, which no superblock counts on.
//! - Rows of chunks with parity have the same locks in all geometries.

use std::sync::Arc;

use larder_format::Logical;
use larder_locks::rank::ROWS;
use larder_locks::{RankedMutex, RankedMutexGuard};

use crate::chunk::{Chunk, ChunkError, ChunkMap};
use crate::failures::Failures;
use crate::member::VolumeDevice;
use crate::problem::Unmapped;
use crate::report::ReportLimit;
use crate::stats::Counters;
use crate::version::{Version, Versions};
use crate::volume::{ReadPolicy, Volume};

/// Locks of rows of chunks with parity, shared by rows of equal hash.
const ROW_LOCKS: usize = 64;

/// The devices and chunks of a volume at one time. Cloning shares both.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// In order of device ids, each of which appears once.
    devices: Arc<[Arc<VolumeDevice>]>,
    chunks: Arc<ChunkMap>,
    /// The other layout of the chunk that moves (`moving.rs`).
    pub(crate) other_layout: Option<Arc<Chunk>>,
    pub(crate) common: Arc<Common>,
    version: Version,
}

/// What all geometries of a volume share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) is_writable: bool,
    pub(crate) read_policy: ReadPolicy,
    pub(crate) counters: Counters,
    pub(crate) failures: Failures,
    /// Counters that belong to no device.
    pub(crate) reports: ReportLimit,
    row_locks: [RankedMutex<(), ROWS>; ROW_LOCKS],
    pub(crate) versions: Versions,
}

impl Geometry {
    pub(crate) fn new(
        mut devices: Vec<VolumeDevice>,
        chunks: ChunkMap,
        is_writable: bool,
        read_policy: ReadPolicy,
    ) -> Self {
        devices.sort_by_key(VolumeDevice::devid);
        let versions = Versions::default();
        Self {
            devices: devices.into_iter().map(Arc::new).collect(),
            chunks: Arc::new(chunks),
            other_layout: None,
            version: versions.next(),
            common: Arc::new(Common {
                is_writable,
                read_policy,
                counters: Counters::default(),
                failures: Failures::default(),
                reports: ReportLimit::default(),
                row_locks: std::array::from_fn(|_| RankedMutex::new(())),
                versions,
            }),
        }
    }

    /// The devices in order of their ids.
    pub fn devices(&self) -> &Arc<[Arc<VolumeDevice>]> {
        &self.devices
    }

    /// The device with this id.
    pub fn device(&self, devid: u64) -> Option<&Arc<VolumeDevice>> {
        let at = self.devices.binary_search_by_key(&devid, |device| device.devid()).ok()?;
        Some(&self.devices[at])
    }

    /// The chunks.
    pub fn chunks(&self) -> &Arc<ChunkMap> {
        &self.chunks
    }

    /// The chunk that contains `logical`.
    pub fn chunk_at(&self, logical: Logical) -> Option<&Arc<Chunk>> {
        self.chunks.get(logical)
    }

    /// Puts a chunk in the place of the one with its addresses, which is returned.
    pub(crate) fn exchange_chunk(&mut self, chunk: Arc<Chunk>) -> Option<Arc<Chunk>> {
        let current = self.chunk_at(chunk.logical()).cloned();
        let replaced = Arc::make_mut(&mut self.chunks).replace(chunk);
        replaced.expect("it has the addresses of the one before");
        current
    }

    /// Puts a device in the place of the one with its id.
    pub(crate) fn exchange_device(&mut self, device: VolumeDevice) {
        let device = Arc::new(device);
        let devices = self.devices.iter();
        self.devices = devices
            .map(|own| if own.devid() == device.devid() { device.clone() } else { own.clone() })
            .collect();
    }

    /// The chunk that contains the whole of a range.
    pub(crate) fn chunk_of(
        &self,
        logical: Logical,
        len_bytes: u64,
    ) -> Result<&Arc<Chunk>, Unmapped> {
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
            visit(chunk, at, part_bytes)?;
            at = chunk.end();
            left -= part_bytes;
        }
        Ok(())
    }

    /// Locks a row of a chunk with parity. A thread holds one such lock at a time.
    pub(crate) fn lock_row(&self, chunk: &Chunk, row: u64) -> RankedMutexGuard<'_, (), ROWS> {
        let Logical(start) = chunk.row_start(row);
        let number = start / chunk.row_bytes();
        let locks = &self.common.row_locks;
        locks[(number % locks.len() as u64) as usize].lock()
    }
}

impl Volume {
    /// The current geometry. A caller that needs chunks and devices that fit each other takes both
    /// from one.
    pub fn geometry(&self) -> Arc<Geometry> {
        self.geometry.read().clone()
    }

    /// Puts the next geometry in the place of the current one. Requests that began before keep the
    /// one that they have.
    pub(crate) fn change_geometry<T>(&self, change: impl FnOnce(&mut Geometry) -> T) -> T {
        change(Arc::make_mut(&mut self.geometry.write()))
    }

    /// Waits until every request has ended that began on an earlier geometry. The calling thread
    /// keeps none.
    pub(crate) fn wait_for_earlier_requests(&self) {
        let (current, common) = {
            let geometry = self.geometry.read();
            (geometry.version.number, geometry.common.clone())
        };
        common.versions.wait_for_those_before(current);
    }

    /// Adds a device. Commits write its superblocks from now on.
    ///
    /// # Panics
    /// If there is a device of its id.
    pub fn add_device(&self, device: VolumeDevice) {
        self.change_geometry(|next| {
            let devices = next.devices.iter().cloned().chain([Arc::new(device)]);
            let mut devices: Vec<_> = devices.collect();
            devices.sort_by_key(|device| device.devid());
            let is_new = devices.windows(2).all(|pair| pair[0].devid() != pair[1].devid());
            assert!(is_new, "each device has an id of its own");
            next.devices = devices.into();
        });
    }

    /// Removes a device on which no chunk lies. Commits leave it as it is from now on.
    ///
    /// # Panics
    /// If a chunk has a stripe there.
    pub fn remove_device(&self, devid: u64) -> Option<Arc<VolumeDevice>> {
        self.change_geometry(|next| {
            let has_stripe =
                |chunk: &Arc<Chunk>| chunk.stripes().iter().any(|stripe| stripe.devid == devid);
            assert!(!next.chunks.iter().any(has_stripe), "a chunk lies on the device");
            let removed = next.device(devid).cloned()?;
            let others = next.devices.iter().filter(|device| device.devid() != devid);
            next.devices = others.cloned().collect();
            Some(removed)
        })
    }

    /// Adds a new chunk.
    pub fn add_chunk(&self, chunk: Chunk) -> Result<(), ChunkError> {
        self.change_geometry(|next| Arc::make_mut(&mut next.chunks).insert(chunk))
    }

    /// Removes the chunk that starts at `logical`.
    pub fn remove_chunk(&self, logical: Logical) -> Option<Arc<Chunk>> {
        self.change_geometry(|next| Arc::make_mut(&mut next.chunks).remove(logical))
    }

    /// Replaces the chunk that starts where this one does, by one with another length or other
    /// stripes: there is no time at which its addresses have none. Refuses a chunk that replaces
    /// none, or that overlaps another.
    pub fn replace_chunk(&self, chunk: Chunk) -> Result<(), ChunkError> {
        self.change_geometry(|next| Arc::make_mut(&mut next.chunks).replace(Arc::new(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;
    use larder_format::item::DevItem;
    use larder_format::superblock::SUPERBLOCK_SIZE;
    use larder_format::{BlockGroupFlags, Physical, Superblock, Uuid};
    use zerocopy::FromZeros;

    use super::*;
    use crate::chunk::ChunkStripe;

    const KIB: u64 = 1 << 10;

    /// A chunk for data at 1 MiB, with its one stripe at `physical`.
    fn chunk(len_bytes: u64, physical: u64) -> Chunk {
        let stripe = ChunkStripe { devid: 1, dev_uuid: Uuid::nil(), physical: Physical(physical) };
        Chunk::new(Logical(1 << 20), len_bytes, BlockGroupFlags::DATA, [stripe]).unwrap()
    }

    fn volume() -> Volume {
        let mut superblock = Superblock::zeroed();
        assert_eq!(size_of_val(&*superblock), SUPERBLOCK_SIZE);
        superblock.sectorsize = 4096.into();
        superblock.nodesize = 16384.into();
        let item = DevItem { devid: 1.into(), ..DevItem::new_zeroed() };
        let device = VolumeDevice::new(item, Arc::new(MemoryDevice::new("memory", 8 << 20)));
        Volume::new(superblock, vec![device], ChunkMap::from_chunks([chunk(256 * KIB, 0)]).unwrap())
    }

    #[test]
    fn a_request_finishes_on_its_geometry() {
        let volume = volume();
        let before = volume.geometry();
        volume.replace_chunk(chunk(256 * KIB, 4 << 20)).unwrap();
        let logical = Logical(1 << 20);
        let place = |geometry: &Geometry| geometry.chunk_at(logical).unwrap().stripes()[0].physical;
        assert_eq!(place(&before), Physical(0));
        assert_eq!(place(&volume.geometry()), Physical(4 << 20));
        assert!(Arc::ptr_eq(&before.devices()[0], &volume.devices()[0]));
        volume.remove_chunk(logical).unwrap();
        assert_eq!(place(&before), Physical(0));
        // It is given up with the last request.
        let weak = Arc::downgrade(&before);
        drop(before);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_chunk_that_is_replaced_is_never_absent() {
        let (volume, logical) = (volume(), Logical(1 << 20));
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                for turn in 0..2000 {
                    let len_bytes = if turn % 2 == 0 { 128 * KIB } else { 256 * KIB };
                    volume.replace_chunk(chunk(len_bytes, 0)).unwrap();
                }
            });
            while !replacing.is_finished() {
                assert!(volume.chunk_at(logical).is_some());
            }
        });
    }

    #[test]
    fn a_chunk_replaces_only_the_one_at_its_start() {
        let volume = volume();
        volume.replace_chunk(chunk(128 * KIB, 0)).unwrap();
        assert_eq!(volume.chunks().iter().next().unwrap().len_bytes(), 128 * KIB);
        let stripe = chunk(KIB, 0).stripes()[0];
        let other = |at: u64, len_bytes: u64| {
            Chunk::new(Logical(at), len_bytes, BlockGroupFlags::DATA, [stripe]).unwrap()
        };
        assert!(volume.replace_chunk(other((1 << 20) + 4096, KIB)).is_err());
        volume.add_chunk(other((1 << 20) + 128 * KIB, KIB)).unwrap();
        let error = volume.replace_chunk(chunk(256 * KIB, 0)).unwrap_err().to_string();
        assert!(error.contains("overlap the chunk at"), "{error}");
        assert_eq!(volume.chunk_at(Logical(1 << 20)).unwrap().len_bytes(), 128 * KIB);
    }
}
