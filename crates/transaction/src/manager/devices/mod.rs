//! Devices that come, go and change their sizes, and profiles that change, while the file system is
//! in use.
//!
//! # Invariants
//! - One thread at a time does such work.
//! - Each step is one commit, and leaves a sound file system: chunks move one by one, and a device goes
//!   when nothing is left on it. Work that ends early, by an error or by a power cut, can be begun
//!   again, and goes on with what is left.
//! - New chunks avoid what is to become empty from the beginning of the work on.

mod add;
mod complete;
mod convert;
mod fold;
mod gather;
mod minimum;
mod remove;
mod replace;
mod resize;

use std::ops::ControlFlow;

use larder_format::item::{DevItem, DevReplaceItem};
use larder_format::objectid::DEV_ITEMS;
use larder_format::{ItemType, Key, Profile};
use larder_volume::{Chunk, ChunkStripe};
use parking_lot::MutexGuard;
use zerocopy::IntoBytes;

use super::TransactionManager;
use crate::copy::Moved;
use crate::error::{Error, Result};

pub use convert::Conversion;
pub(super) use convert::Targets;
pub use replace::Replacement;

/// How far work on devices has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceProgress {
    /// Bytes that were copied.
    pub done_bytes: u64,
    /// Bytes to copy, as far as it is known.
    pub total_bytes: u64,
}

/// Is called in the thread that works with how far it has come. Says whether it goes on: otherwise the
/// work ends with [`Error::Cancelled`].
pub type Tell<'t> = dyn Fn(DeviceProgress) -> ControlFlow<()> + 't;

/// Work on devices, which no other thread does meanwhile.
struct DeviceWork<'m> {
    manager: &'m TransactionManager,
    tell: &'m Tell<'m>,
    progress: DeviceProgress,
    moved: Moved,
    _turn: MutexGuard<'m, ()>,
}

impl TransactionManager {
    /// Calls `act` while no other thread works on devices.
    pub(super) fn with_device_work<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let _work = DeviceWork::begin_with_replace(self, &|_| ControlFlow::Continue(()))?;
        act()
    }
}

impl<'m> DeviceWork<'m> {
    fn begin(manager: &'m TransactionManager, tell: &'m Tell<'m>) -> Result<Self> {
        let work = Self::begin_with_replace(manager, tell)?;
        if let Some(item) = manager.replace_item()?.filter(DevReplaceItem::is_unfinished) {
            return Err(Error::Devices(format!(
                "a replace of device {} is unfinished: 'larder replace resume' or 'cancel' ends it",
                item.src_devid
            )));
        }
        Ok(work)
    }

    /// The same, also while a replace is unfinished.
    fn begin_with_replace(manager: &'m TransactionManager, tell: &'m Tell<'m>) -> Result<Self> {
        let turn = manager.device_work.try_lock().ok_or(Error::OtherWork)?;
        let (progress, moved) = (DeviceProgress::default(), Moved::default());
        Ok(Self { manager, tell, progress, moved, _turn: turn })
    }

    /// Moves the chunks for which `is_one` holds to the profile that `wanted` says, away from the
    /// stripes that leave.
    fn move_chunks(
        &mut self,
        is_one: impl Fn(&Chunk) -> bool,
        wanted: impl Fn(&Chunk) -> Profile,
        leaves: impl Fn(&Chunk, &ChunkStripe) -> bool,
    ) -> Result<()> {
        let groups = self.manager.space().groups();
        let groups: Vec<_> = groups.into_iter().filter(|group| is_one(&group.chunk())).collect();
        self.progress.total_bytes += groups.iter().map(|group| group.used()).sum::<u64>();
        for group in groups {
            let chunk = group.chunk();
            let leaves = |stripe: &ChunkStripe| leaves(&chunk, stripe);
            let (start, profile, manager) = (chunk.logical(), wanted(&chunk), self.manager);
            let mut advance = |bytes: u64| self.advance(bytes);
            let moved = manager.move_chunk(start, profile, leaves, &mut advance)?;
            self.moved.add(&moved);
        }
        Ok(())
    }

    /// Tells that so many more bytes are copied.
    fn advance(&mut self, bytes: u64) -> Result<()> {
        let progress = &mut self.progress;
        progress.done_bytes = (progress.done_bytes + bytes).min(progress.total_bytes);
        match (self.tell)(*progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        }
    }

    /// Changes the item of a device in the chunk tree and in its next superblocks, and commits. It
    /// reserves nothing, since sizes change also where no metadata is left: only the chunk tree
    /// changes, whose space no one else takes.
    fn change_device(&self, devid: u64, change: impl Fn(&mut DevItem)) -> Result<()> {
        let manager = self.manager;
        let device = manager.volume().device(devid).ok_or_else(|| no_device(devid))?;
        let mut logs = manager.lock_committing();
        manager.commit_with(&mut logs, |_| {
            device.change_dev_item(&change);
            let item = device.dev_item();
            self.set_superblock_devices();
            manager
                .bookkeeping
                .edit_devices(|trees| trees.chunk_tree.replace(device_key(devid), item.as_bytes()))
        })?;
        Ok(())
    }

    /// Sets what the next superblock says of all devices.
    fn set_superblock_devices(&self) {
        let devices = self.manager.volume().devices();
        let total_bytes = devices.iter().map(|device| device.dev_item().total_bytes.get()).sum();
        self.manager.change_superblock(|superblock| {
            superblock.num_devices = (devices.len() as u64).into();
            superblock.total_bytes = u64::into(total_bytes);
        });
    }
}

/// Items of the chunk tree and the device tree for one device.
const ITEMS_PER_DEVICE: u64 = 2;

fn device_key(devid: u64) -> Key {
    Key::new(DEV_ITEMS, ItemType::DEV_ITEM, devid)
}

fn no_device(devid: u64) -> Error {
    Error::Devices(format!("there is no device {devid}"))
}

/// Whether a stripe of a chunk lies on the device and ends after `end`.
fn passes(chunk: &Chunk, stripe: &ChunkStripe, devid: u64, end: u64) -> bool {
    stripe.devid == devid && stripe.physical.0 + chunk.bytes_per_stripe() > end
}
