//! Devices that were used separately: each has commits that the other has not, and neither is the
//! truth.
//!
//! Their superblocks may have the same generation, and identical changes may have the same
//! addresses; but the same tree block of the same generation then has different content on each. If
//! no block of the time in which both were used is left, nothing tells them from a device that
//! missed commits, and the newer is the truth.

use larder_format::{Logical, Superblock};

use crate::member::VolumeDevice;
use crate::read::BlockExpectation;
use crate::volume::Volume;

/// Each of two devices has commits that the other has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{first} and {second} were used separately: each has changes that the other has not; \
     keep one of them, and erase the other (wipefs --all) or move its image elsewhere; the one that \
     is kept opens degraded"
)]
pub struct UsedSeparately {
    /// Name of a device.
    pub first: String,
    /// Name of the other.
    pub second: String,
}

/// Whether superblocks of one file system and generation can be of the same commit.
pub(super) fn is_same_commit(a: &Superblock, b: &Superblock) -> bool {
    let commit = |s: &Superblock| {
        let roots = (s.root, s.root_level, s.chunk_root, s.chunk_root_level);
        let totals = (s.chunk_root_generation, s.bytes_used, s.total_bytes, s.num_devices);
        (roots, totals, s.label, s.csum_type)
    };
    commit(a) == commit(b)
}

/// Whether the commit of an older superblock can have led to a newer one, as far as the newer one's
/// backup roots tell.
pub(super) fn is_earlier_commit(older: &Superblock, newer: &Superblock) -> bool {
    let is_of_older = |generation: u64| generation == older.generation.get();
    let mut backups = newer.super_roots.iter();
    backups.all(|backup| {
        !is_of_older(backup.tree_root_gen.get())
            || (backup.tree_root, backup.chunk_root) == (older.root, older.chunk_root)
    })
}

impl Volume {
    /// Compares the copies of the root of the root tree on devices of the newest generation.
    pub(super) fn check_same_root(&self) -> Result<(), UsedSeparately> {
        let superblock = self.superblock();
        let (root, generation) = (superblock.root(), superblock.generation.get());
        let expected = BlockExpectation { generation: Some(generation), ..Default::default() };
        let mut copies = self.copies_on_devices(root, |device| !device.is_stale(), expected);
        let Some((first, wanted)) = copies.next() else { return Ok(()) };
        match copies.find(|(second, copy)| *second != first && *copy != wanted) {
            Some((second, _)) => Err(UsedSeparately { first, second }),
            None => Ok(()),
        }
    }

    /// Compares a tree block with the content at its address on devices that missed commits. A block
    /// that is not newer existed before they missed any, so that another sound block there is of a
    /// commit that others have not.
    pub fn check_history(
        &self,
        logical: Logical,
        generation: u64,
        block: &[u8],
    ) -> Result<(), UsedSeparately> {
        let had_it = |device: &VolumeDevice| {
            device.is_stale() && device.generation().is_some_and(|until| generation <= until)
        };
        let mut copies = self.copies_on_devices(logical, had_it, BlockExpectation::default());
        let Some((first, _)) = copies.find(|(_, copy)| copy != block) else { return Ok(()) };
        let devices = self.devices();
        let newest = devices.iter().find(|device| !device.is_stale() && !device.is_missing());
        let second = newest.map_or_else(String::new, |device| device.name());
        Err(UsedSeparately { first, second })
    }

    /// The sound copies of a tree block on wanted devices, with their names.
    fn copies_on_devices<'v>(
        &'v self,
        logical: Logical,
        is_wanted: impl Fn(&VolumeDevice) -> bool + 'v,
        expected: BlockExpectation,
    ) -> impl Iterator<Item = (String, Vec<u8>)> + 'v {
        let len_bytes = u64::from(self.nodesize());
        let geometry = self.geometry();
        let mirrors = geometry.chunk_of(logical, len_bytes).map_or(0, |chunk| chunk.mirrors());
        (0..mirrors).filter_map(move |mirror| {
            let chunk = geometry.chunk_of(logical, len_bytes).ok()?;
            let segment = chunk.segment(logical, len_bytes);
            let address = chunk.address(&segment, mirror);
            let device = geometry.device(address.devid).filter(|device| is_wanted(device))?;
            let mut copy = vec![0; len_bytes as usize];
            if segment.len_bytes < len_bytes || geometry.read_device(address, &mut copy).is_err() {
                return None;
            }
            self.verify_block(logical, &expected, &copy).ok()?;
            Some((device.name(), copy))
        })
    }
}
