//! What the superblocks say, and the chunks if they can be read.

use std::sync::Arc;

use larder_device::Device;
use larder_format::item::DevItem;
use larder_format::{ChecksumType, Node, Superblock, Uuid};
use larder_volume::{OpenError, OpenOptions, Rescue, Volume, scan};
use zerocopy::FromZeros;

use crate::RescueError;

/// A device and the id that its superblock gives it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) devid: u64,
    pub(crate) dev_item: DevItem,
    pub(crate) device: Arc<dyn Device>,
}

/// What is known before anything is searched for.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) members: Vec<Member>,
    /// The newest superblock.
    pub(crate) superblock: Box<Superblock>,
    /// With all chunks; otherwise why they cannot be read.
    pub(crate) volume: Result<Volume, OpenError>,
    /// The uuids that tree blocks may carry.
    fsids: Vec<Uuid>,
}

impl Evidence {
    pub(crate) fn of(devices: Vec<Arc<dyn Device>>) -> Result<Self, RescueError> {
        let (mut members, mut fsids) = (Vec::new(), Vec::new());
        let mut newest: Option<Box<Superblock>> = None;
        for device in &devices {
            let superblock = scan(device.as_ref())?.superblock;
            fsids.push(superblock.metadata_uuid());
            let dev_item = superblock.dev_item;
            let devid = dev_item.devid.get();
            members.push(Member { devid, dev_item, device: device.clone() });
            let generation = |superblock: &Superblock| superblock.generation.get();
            if newest.as_deref().is_none_or(|best| generation(best) < generation(&superblock)) {
                newest = Some(superblock);
            }
        }
        let superblock = newest.ok_or(RescueError::NoDevices)?;
        let rescue = Rescue { ignore_bad_roots: true, ..Rescue::default() };
        let options =
            OpenOptions { degraded: true, any_state: true, rescue, ..OpenOptions::default() };
        let volume = match Volume::open(devices, &options) {
            Ok(volume) => Ok(volume),
            Err(
                error @ (OpenError::MissingDevices { .. }
                | OpenError::NotEnoughDevices { .. }
                | OpenError::SystemChunks(_)
                | OpenError::Chunk(_)
                | OpenError::ChunkTree(_)
                | OpenError::ChunkTreeItem { .. }),
            ) => Err(error),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { members, superblock, volume, fsids })
    }

    /// What `superblock` says of devices, some of which have none; their ids are unknown.
    pub(crate) fn without_chunks(devices: &[Arc<dyn Device>], superblock: Box<Superblock>) -> Self {
        let member = |device: &Arc<dyn Device>| {
            let dev_item = DevItem::new_zeroed();
            Member { devid: 0, dev_item, device: device.clone() }
        };
        let members = devices.iter().map(member).collect();
        let fsids = vec![superblock.metadata_uuid()];
        Self { members, superblock, volume: Err(OpenError::NoDevices), fsids }
    }

    pub(crate) fn nodesize(&self) -> usize {
        self.superblock.nodesize.get() as usize
    }

    pub(crate) fn sectorsize(&self) -> usize {
        self.superblock.sectorsize.get() as usize
    }

    /// Whether a block begins with `start` that may be one of the file system: a cheap question.
    pub(crate) fn may_be_block(&self, start: &[u8]) -> bool {
        let fsid = start.get(32..48).and_then(|bytes| bytes.try_into().ok());
        fsid.is_some_and(|fsid| self.fsids.contains(&Uuid::from_bytes(fsid)))
    }

    /// The tree block in `bytes`, if it is one of the file system with the right checksum.
    pub(crate) fn block<'b>(&self, bytes: &'b [u8]) -> Option<Node<'b>> {
        let kind: ChecksumType = self.superblock.checksum_type();
        let is_right = self.may_be_block(bytes)
            && kind.compute_block(bytes).as_bytes() == &bytes[..kind.size()];
        is_right.then(|| Node::parse(bytes).ok()).flatten()
    }
}
