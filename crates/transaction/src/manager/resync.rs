//! Bringing devices that missed commits up to date, before any content of them is trusted.
//!
//! # Invariants
//! - A device that missed commits keeps its superblock until everything that it missed is durable
//!   on it: if this is interrupted, the next opening begins again.
//! - If content is lost that has no checksum (`copy.rs`), the device that missed commits stays
//!   stale, and is not read.
//! - The first copies of the superblock lead to the last commit before anything changes.
//! - If a device is missing, a commit that it lacks comes before any other change.
//! - A device that refuses a write meanwhile is left out again, and stays stale.
//! - The reported progress only goes forward, and ends at its total if nothing fails.

use std::ops::ControlFlow;

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
    }
    if manager.has_changes() {
        manager.commit()?;
    }
    let stale = volume.stale_devices();
    for device in &stale {
        let (devid, name) = (device.devid(), device.name());
        tracing::warn!(
            "device {devid} ({name}) now gets the commits that it missed, copied from the others"
        );
    }
    if !stale.is_empty() && copy_all(manager, History::Unknown, tell)? {
        volume.end_staleness();
        volume.write_superblocks(&volume.superblock())?;
        manager.space().heed_devices();
        complete(manager);
    }
    Ok(())
}

/// Completes what was written while devices were missing. If it fails, everything is as it was.
fn complete(manager: &TransactionManager) {
    let go_on = |_| ControlFlow::Continue(());
    if !manager.space().is_degraded()
        && let Err(error) = manager.complete_redundancy(&go_on)
    {
        tracing::warn!("not all block groups have as many copies as they should: {error}");
    }
}

impl TransactionManager {
    /// Brings devices up to date that opening had to leave out of date, and those that refused
    /// writes since, while the file system is in use. Returns whether all devices are up to date now.
    ///
    /// # Errors
    /// Also if other work on the devices is in progress.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](super::Handle).
    pub fn bring_up_to_date(&self, tell: &dyn Fn(ResyncProgress)) -> Result<bool> {
        let had_stale = !self.volume().stale_devices().is_empty();
        let is_up_to_date = self.with_device_work(|| self.renew_devices(tell))?;
        if had_stale && is_up_to_date {
            complete(self);
        }
        Ok(is_up_to_date)
    }

    /// The same, without completing what was written while the devices were left out.
    pub(super) fn renew_devices(&self, tell: &dyn Fn(ResyncProgress)) -> Result<bool> {
        let is_up_to_date = || self.volume().stale_devices().is_empty();
        if is_up_to_date() {
            return Ok(true);
        }
        if !copy_all(self, History::Checked, tell)? {
            return Ok(false);
        }
        self.volume().end_staleness();
        self.space().heed_devices();
        // The superblocks of all devices lead to a new state, which has all logs.
        self.change_superblock(|_| ());
        self.commit()?;
        Ok(is_up_to_date())
    }
}

/// Whether it is known that the devices only missed commits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    Checked,
    Unknown,
}

/// Copies what devices missed, and makes that durable. Returns whether nothing is lost.
fn copy_all(
    manager: &TransactionManager,
    history: History,
    tell: &dyn Fn(ResyncProgress),
) -> Result<bool> {
    let volume = manager.volume();
    volume.readmit();
    let mut progress = ResyncProgress { done_bytes: 0, total_bytes: 0 };
    let chunks = volume.chunks();
    let outdated = || chunks.iter().filter(|chunk| volume.has_outdated(chunk));
    let to_check = || {
        let is_unknown = history == History::Unknown;
        outdated().filter(move |chunk| is_unknown && chunk.holds_tree_blocks())
    };
    let used_bytes =
        |chunk: &Chunk| manager.space().group_at(chunk.logical()).map_or(0, |group| group.used());
    progress.total_bytes = outdated().chain(to_check()).map(|chunk| used_bytes(chunk)).sum();
    let mut advance = |bytes| {
        let done_bytes = progress.done_bytes.saturating_add(bytes);
        progress.done_bytes = done_bytes.min(progress.total_bytes);
        tell(progress);
        Ok(())
    };
    let mut copier = Copier::new(manager, &mut advance)?;
    let range = |chunk: &Chunk| chunk.logical().0..chunk.end().0;
    to_check().try_for_each(|chunk| copier.check_history(range(chunk)))?;
    outdated().try_for_each(|chunk| copier.copy(range(chunk)))?;
    volume.flush()?;
    let Copier { copied_bytes, lost_bytes, .. } = copier;
    if lost_bytes > 0 {
        tracing::error!(
            "{lost_bytes} bytes without checksums cannot be read from the devices that missed no \
             commits; those that did are not trusted until these bytes are overwritten or deleted"
        );
    } else {
        tracing::info!("all devices are up to date: {copied_bytes} bytes were copied");
    }
    Ok(lost_bytes == 0)
}
