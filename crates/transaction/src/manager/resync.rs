//! Bringing devices that missed commits up to date, before any content of them is trusted.
//!
//! # Invariants
//! - A device that missed commits keeps its superblock until everything that it missed is durable
//!   on it: if this is interrupted, the next opening begins again.
//! - Copied content was verified if it has a checksum. If it has none, it comes from a device that
//!   missed nothing; otherwise the device that missed commits stays stale, and is not read.
//! - The first copies of the superblock lead to the last commit before anything changes.
//! - If a device is missing, a commit that it lacks comes before any other change.
//! - The reported progress only goes forward, and ends at its total if nothing fails.

use std::ops::Range;

use larder_btree::{Readahead, Tree};
use larder_format::BlockGroupFlags;
use larder_format::item::{EXTENT_FLAG_TREE_BLOCK, ExtentItem, csum_count};
use larder_format::{FormatError, ItemType, Key, Logical, objectid, read_prefix};
use larder_volume::{BlockExpectation, Chunk, Volume};

use super::TransactionManager;
use crate::error::{Error, Result};

/// The size of a piece of data to copy.
const PIECE_BYTES: u64 = 1 << 20;

/// The progress of copying to devices that missed commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncProgress {
    /// Bytes of extents that were looked at; those of tree blocks count twice.
    pub done_bytes: u64,
    /// Bytes to look at in total.
    pub total_bytes: u64,
}

/// Before anything else is written: makes all copies of the superblock alike, if a crash left the
/// first ones older. The kernel reads only those, and needs what they lead to; changes would
/// overwrite it.
pub(super) fn renew_first_superblocks(manager: &TransactionManager) -> Result<()> {
    let volume = manager.volume();
    if volume.devices().iter().any(|device| device.has_older_first_copy() && !device.is_seed()) {
        tracing::warn!("a crash left a first superblock older than its copies: it is renewed");
        volume.write_superblocks(&volume.superblock())?;
    }
    Ok(())
}

/// Before the first change: notes that devices are missing, and brings those up to date that missed
/// commits. Calls `tell` in this thread with the progress, if any device missed commits.
pub(super) fn bring_devices_up_to_date(
    manager: &TransactionManager,
    tell: &dyn Fn(ResyncProgress),
) -> Result<()> {
    let volume = manager.volume();
    if volume.devices().iter().any(|device| device.is_missing() && !device.is_seed()) {
        manager.change_superblock(|_| ());
        manager.commit()?;
    }
    let stale = volume.stale_devices();
    for device in &stale {
        let (devid, name) = (device.devid(), device.name());
        tracing::warn!(
            "device {devid} ({name}) now gets the commits that it missed, copied from the others"
        );
    }
    if stale.is_empty() { Ok(()) } else { resynchronise(manager, tell) }
}

fn resynchronise(manager: &TransactionManager, tell: &dyn Fn(ResyncProgress)) -> Result<()> {
    let volume = manager.volume();
    let (cache, trees) = (manager.trees.forest().cache(), manager.trees.system());
    let mut copying = Copying {
        volume,
        extents: Tree::new(cache.clone(), trees.extent.root()),
        checksums: Tree::new(cache.clone(), trees.csum.root()),
        copied_bytes: 0,
        lost_bytes: 0,
        progress: ResyncProgress { done_bytes: 0, total_bytes: 0 },
        tell,
    };
    let chunks = volume.chunks();
    let outdated = || chunks.iter().filter(|chunk| volume.has_outdated(chunk));
    let with_blocks = || outdated().filter(|chunk| holds_tree_blocks(chunk));
    let used_bytes =
        |chunk: &Chunk| manager.space().group_at(chunk.logical()).map_or(0, |group| group.used());
    copying.progress.total_bytes =
        outdated().chain(with_blocks()).map(|chunk| used_bytes(chunk)).sum();
    with_blocks().try_for_each(|chunk| copying.check_history(chunk))?;
    outdated().try_for_each(|chunk| copying.copy_chunk(chunk))?;
    volume.flush()?;
    let Copying { copied_bytes, lost_bytes, .. } = copying;
    if lost_bytes > 0 {
        tracing::error!(
            "{lost_bytes} bytes without checksums cannot be read from the devices that missed no \
             commits; those that did are not trusted until these bytes are overwritten or deleted"
        );
        return Ok(());
    }
    volume.end_staleness();
    volume.write_superblocks(&volume.superblock())?;
    tracing::info!("all devices are up to date: {copied_bytes} bytes were copied");
    Ok(())
}

/// Copying the last commit to devices that missed commits.
struct Copying<'v> {
    volume: &'v Volume,
    extents: Tree,
    checksums: Tree,
    copied_bytes: u64,
    /// Bytes without checksums that cannot be read from a device that is up to date.
    lost_bytes: u64,
    progress: ResyncProgress,
    tell: &'v dyn Fn(ResyncProgress),
}

fn holds_tree_blocks(chunk: &Chunk) -> bool {
    chunk.flags().intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
}

/// An extent.
struct Extent {
    range: Range<u64>,
    /// The generation of its tree block, if it is one.
    block_generation: Option<u64>,
}

impl Copying<'_> {
    /// Refuses devices that did not only miss commits, but made others: a tree block from before
    /// they missed any must still be there.
    fn check_history(&mut self, chunk: &Chunk) -> Result<()> {
        let mut block = vec![0; self.volume.nodesize() as usize];
        for extent in self.extents_of(chunk) {
            let Extent { range, block_generation } = extent?;
            let logical = Logical(range.start);
            if let Some(generation) = block_generation
                && self.read_block(logical, generation, &mut block)
            {
                self.volume.check_history(logical, generation, &block)?;
            }
            self.advance(range.end - range.start);
        }
        Ok(())
    }

    fn copy_chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let mut block = vec![0; self.volume.nodesize() as usize];
        for extent in self.extents_of(chunk) {
            let Extent { range, block_generation } = extent?;
            let logical = Logical(range.start);
            let Some(generation) = block_generation else {
                self.copy_data(range)?;
                continue;
            };
            // If no copy is right, a reader will find that.
            if self.read_block(logical, generation, &mut block) {
                self.copied_bytes += self.volume.refresh(logical, &block)?;
            }
            self.advance(range.end - range.start);
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        let ResyncProgress { done_bytes, total_bytes } = self.progress;
        self.progress.done_bytes = done_bytes.saturating_add(bytes).min(total_bytes);
        (self.tell)(self.progress);
    }

    fn read_block(&self, logical: Logical, generation: u64, block: &mut [u8]) -> bool {
        let expected = BlockExpectation { generation: Some(generation), ..Default::default() };
        self.volume.read_tree_block(logical, &expected, block).is_ok()
    }

    fn copy_data(&mut self, range: Range<u64>) -> Result<()> {
        for start in range.clone().step_by(PIECE_BYTES as usize) {
            let end = range.end.min(start + PIECE_BYTES);
            let sums = self.checksums_of(start..end)?;
            let mut at = start;
            for run in sums.chunk_by(|a, b| a.is_some() == b.is_some()) {
                let sectors = run.len() as u64;
                let sums: Option<Vec<u8>> =
                    run[0].is_some().then(|| run.iter().flatten().flatten().copied().collect());
                self.copy_run(at, sectors, sums.as_deref())?;
                at += sectors * self.sectorsize();
            }
            self.advance(end - start);
        }
        Ok(())
    }

    /// Copies sectors that all have checksums, or all have none; one by one if not all can be read.
    fn copy_run(&mut self, start: u64, sectors: u64, sums: Option<&[u8]>) -> Result<()> {
        let sectorsize = self.sectorsize();
        let mut data = vec![0; (sectors * sectorsize) as usize];
        if self.volume.read_data(Logical(start), &mut data, sums).is_ok() {
            self.copied_bytes += self.volume.refresh(Logical(start), &data)?;
            return Ok(());
        }
        if sectors == 1 {
            // Content with a checksum is never taken for right by mistake.
            self.lost_bytes += if sums.is_none() { sectorsize } else { 0 };
            return Ok(());
        }
        let csum_size = self.volume.checksum_type().size();
        for sector in 0..sectors {
            let sum = sums.map(|sums| &sums[sector as usize * csum_size..][..csum_size]);
            self.copy_run(start + sector * sectorsize, 1, sum)?;
        }
        Ok(())
    }

    /// The checksums of the sectors of a range that have some.
    fn checksums_of(&self, range: Range<u64>) -> Result<Vec<Option<Vec<u8>>>> {
        let (sectorsize, kind) = (self.sectorsize(), self.volume.checksum_type());
        let mut sums = vec![None; ((range.end - range.start) / sectorsize) as usize];
        let key = |logical| Key::new(objectid::EXTENT_CSUM, ItemType::EXTENT_CSUM, logical);
        let mut cursor = self.checksums.cursor(Readahead::Forward);
        // The item that covers the start is the last whose key is not after it.
        let mut is_there = cursor.seek_last(key(range.start))? || cursor.next()?;
        while let Some((found, data)) = cursor.item().filter(|_| is_there) {
            if found >= key(range.end) {
                break;
            }
            let wrong = |problem: FormatError| Error::item(objectid::CSUM_TREE, found, problem);
            csum_count(data.len(), kind).map_err(wrong)?;
            for (number, sum) in (0..).zip(data.chunks_exact(kind.size())) {
                let sector = (found.offset + number * sectorsize).checked_sub(range.start);
                let slot = sector.and_then(|bytes| sums.get_mut((bytes / sectorsize) as usize));
                if let Some(slot) = slot {
                    *slot = Some(sum.to_vec());
                }
            }
            is_there = cursor.next()?;
        }
        Ok(sums)
    }

    /// The extents of a chunk in order.
    fn extents_of(&self, chunk: &Chunk) -> impl Iterator<Item = Result<Extent>> + use<> {
        let tree = self.extents.root().tree;
        let nodesize = u64::from(self.volume.nodesize());
        let (start, end) = (chunk.logical().0, chunk.end().0);
        let keys = Key::new(start, ItemType(0), 0)..Key::new(end, ItemType(0), 0);
        let extent = move |key: Key, data: &[u8]| {
            let wrong = |problem| Error::item(tree, key, problem);
            let (item, _) = read_prefix::<ExtentItem>(data).map_err(wrong)?;
            let is_short = key.item_type == ItemType::METADATA_ITEM;
            let is_block = is_short || item.flags.get() & EXTENT_FLAG_TREE_BLOCK != 0;
            let len_bytes = if is_short { nodesize } else { key.offset };
            let extent_end = key.objectid.checked_add(len_bytes).filter(|past| *past <= end);
            let leaves = || wrong(FormatError::invalid("extent", "it leaves its block group"));
            Ok(Extent {
                range: key.objectid..extent_end.ok_or_else(leaves)?,
                block_generation: is_block.then(|| item.generation.get()),
            })
        };
        self.extents.range(keys, Readahead::Forward).filter_map(move |item| match item {
            Ok(item) => {
                let key = item.key();
                let is_extent =
                    matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM);
                is_extent.then(|| extent(key, &item))
            }
            Err(error) => Some(Err(error.into())),
        })
    }

    fn sectorsize(&self) -> u64 {
        u64::from(self.volume.sectorsize())
    }
}
