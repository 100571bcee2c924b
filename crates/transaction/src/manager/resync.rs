//! Bringing devices that missed commits up to date, before any content of them is trusted.
//!
//! # Invariants
//! - A device that missed commits keeps its superblock until everything that it missed is durable
//!   on it: if this is interrupted, the next opening begins again.
//! - If content is lost that has no checksum (`copy.rs`), the device that missed commits stays
//!   stale, and is not read.
//! - The first copies of the superblock lead to the last commit before anything changes.
//! - If a device is missing, a commit that it lacks comes before any other change.
//! - The reported progress only goes forward, and ends at its total if nothing fails.

use larder_btree::Tree;
use larder_format::BlockGroupFlags;
use larder_volume::Chunk;

use super::TransactionManager;
use crate::copy::Copier;
use crate::error::Result;

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
    let mut progress = ResyncProgress { done_bytes: 0, total_bytes: 0 };
    let chunks = volume.chunks();
    let outdated = || chunks.iter().filter(|chunk| volume.has_outdated(chunk));
    let with_blocks = || outdated().filter(|chunk| holds_tree_blocks(chunk));
    let used_bytes =
        |chunk: &Chunk| manager.space().group_at(chunk.logical()).map_or(0, |group| group.used());
    progress.total_bytes = outdated().chain(with_blocks()).map(|chunk| used_bytes(chunk)).sum();
    let mut advance = |bytes| {
        let done_bytes = progress.done_bytes.saturating_add(bytes);
        progress.done_bytes = done_bytes.min(progress.total_bytes);
        tell(progress);
    };
    let extents = Tree::new(cache.clone(), trees.extent.root());
    let checksums = Tree::new(cache.clone(), trees.csum.root());
    let mut copier = Copier::new(volume, extents, checksums, &mut advance);
    let range = |chunk: &Chunk| chunk.logical().0..chunk.end().0;
    with_blocks().try_for_each(|chunk| copier.check_history(range(chunk)))?;
    outdated().try_for_each(|chunk| copier.copy(range(chunk)))?;
    volume.flush()?;
    let Copier { copied_bytes, lost_bytes, .. } = copier;
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

fn holds_tree_blocks(chunk: &Chunk) -> bool {
    chunk.flags().intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
}
