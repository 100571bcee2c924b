//! Replacing a device: another one takes its place, with its id and UUID.
//!
//! What is on the device keeps its addresses there, so that no chunk changes. The target is the
//! device's twin (`larder_volume`, `twin.rs`) until it has everything.
//!
//! # Invariants
//! - The kernel's item in the device tree is the record. While it says that a replace is
//!   unfinished, everything that lies before its cursor on the device is on the target too: in the
//!   last durable state, and in each one after it. So the kernel goes on with what was begun here.
//!   What the kernel began goes on here too, from one stripe before its cursor.
//! - If changes are made without the target, or to one that missed some, the first commit sets the
//!   cursor to 0.
//! - The target takes the place in the commit that ends the replace, between its blocks and its
//!   superblocks. Until that is durable, the device that leaves has everything that the state before
//!   leads to.
//! - Other work on devices waits until a replace is finished or cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_device::Device;
use larder_format::item::{DevReplaceItem, replace_state};
use larder_format::{Uuid, read_exact_item};
use larder_volume::VolumeDevice;
use zerocopy::{FromZeros, IntoBytes};

use super::{DeviceWork, Tell, no_device};
use crate::copy::{Copier, Moved};
use crate::error::{Error, Result};
use crate::items::Items;
use crate::manager::TransactionManager;
use crate::space::{Group, Priority};
use crate::tree_items::TreeItems;

/// The mode in which the source is read only where no other copy is good.
const AVOID_SOURCE: u64 = 1;
/// Items that a replace changes.
const ITEMS: u64 = 1;

/// A replace to begin.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The id of the device to replace.
    pub devid: u64,
    /// The device that takes its place. What it has is lost.
    pub target: Arc<dyn Device>,
    /// Whether the device is read only where no other copy is good.
    pub avoid_source: bool,
}

impl TransactionManager {
    /// Copies everything on a device to another, which then has its place. If the other is smaller,
    /// the file system on the device is made that small first. Calls `tell` in this thread with the
    /// progress. A device that is missing can be replaced too.
    ///
    /// # Errors [`Error::Cancelled`] if `tell` ends it: then it can be
    /// [resumed](Self::resume_replace) or [cancelled](Self::cancel_replace). So it is after
    /// [`Error::Unreadable`]. If the target fails, the replace is cancelled.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn replace_device(&self, wanted: &Replacement, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin(self, tell)?;
        let devid = wanted.devid;
        let source = self.volume().device(devid).ok_or_else(|| no_device(devid))?;
        if source.is_seed() {
            let reason = format!("device {devid} is a seed, which stays as it is");
            return Err(Error::Devices(reason));
        }
        let sectorsize = u64::from(self.volume().sectorsize());
        let room = wanted.target.len_bytes() - wanted.target.len_bytes() % sectorsize;
        if room < source.dev_item().total_bytes.get() {
            work.resize(devid, room)?;
        }
        self.volume().attach_twin(devid, wanted.target.clone(), Uuid::new_v4());
        let item = DevReplaceItem {
            src_devid: devid.into(),
            cont_reading_from_srcdev_mode: u64::from(wanted.avoid_source).into(),
            replace_state: replace_state::STARTED.into(),
            time_started: now().into(),
            ..DevReplaceItem::new_zeroed()
        };
        let begun = self.put_replace_item(&item).and_then(|()| self.commit());
        if let Err(error) = begun {
            self.volume().detach_twin(devid);
            return Err(error);
        }
        self.go_on(&mut work, item)?;
        Ok(work.moved)
    }

    /// Goes on with a replace that was interrupted, by the kernel too.
    ///
    /// # Errors Those of [`replace_device`](Self::replace_device); and if there is none, or its
    /// target is not there.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn resume_replace(&self, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin_with_replace(self, tell)?;
        let (mut item, source) = self.unfinished_replace()?;
        if !source.has_twin() {
            let devid = source.devid();
            return Err(Error::Devices(format!(
                "the device that is to take the place of device {devid} is not there: give it too, \
                 or cancel the replace"
            )));
        }
        item.replace_state = replace_state::STARTED.into();
        item.cursor_left = self.end_of_whole_stripes(&item).into();
        self.put_replace_item(&item)?;
        self.commit()?;
        self.go_on(&mut work, item)?;
        Ok(work.moved)
    }

    /// Where the stripes end that are on the target for certain: all before the cursor but the last.
    /// If Linux (6.18 and before) is told to stop within a stripe, it moves its cursor to the end of
    /// that stripe, whose rest is not copied, and loses it when it goes on itself.
    fn end_of_whole_stripes(&self, item: &DevReplaceItem) -> u64 {
        let places = self.places_on(item.src_devid.get(), 0);
        let ends = places.iter().map(|place| place.end);
        ends.rev().filter(|end| *end <= item.cursor_left.get()).nth(1).unwrap_or(0)
    }

    /// Cancels a replace that does not go on: the target gets no more, and has no superblock
    /// afterwards.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn cancel_replace(&self) -> Result<()> {
        let go_on = |_| std::ops::ControlFlow::Continue(());
        let _work = DeviceWork::begin_with_replace(self, &go_on)?;
        let (item, source) = self.unfinished_replace()?;
        self.give_up(item, source.devid())
    }

    /// What the record says of the last replace, if there was one.
    pub fn replace_item(&self) -> Result<Option<DevReplaceItem>> {
        let tree = TreeItems::new(self.trees().system().dev.clone());
        let Some(data) = tree.get(DevReplaceItem::KEY)? else { return Ok(None) };
        let item: &DevReplaceItem = read_exact_item(&data)
            .map_err(|problem| Error::item(tree.tree(), DevReplaceItem::KEY, problem))?;
        Ok(Some(*item))
    }

    fn unfinished_replace(&self) -> Result<(DevReplaceItem, Arc<VolumeDevice>)> {
        let item = self.replace_item()?.filter(DevReplaceItem::is_unfinished);
        let item = item.ok_or_else(|| Error::Devices("no replace is unfinished".into()))?;
        let devid = item.src_devid.get();
        Ok((item, self.volume().device(devid).ok_or_else(|| no_device(devid))?))
    }

    /// Before anything changes in a file system that was opened: the target of an unfinished
    /// replace gets all writes again. Without it, or if it missed some, the next commit says that
    /// the replace begins anew.
    pub(in crate::manager) fn take_replace_up(&self) -> Result<()> {
        let Some(item) = self.replace_item()?.filter(DevReplaceItem::is_unfinished) else {
            if let Some(found) = self.volume().found_twin() {
                let name = found.device.name();
                tracing::warn!("{name}: it was to take a place in a replace that ended: left out");
            }
            return Ok(());
        };
        let devid = item.src_devid.get();
        let source = self.volume().device(devid).ok_or_else(|| no_device(devid))?;
        let total_bytes = source.dev_item().total_bytes.get();
        let found = self.volume().found_twin();
        let found = found.filter(|found| found.device.len_bytes() >= total_bytes);
        if let Some(found) = found {
            self.volume().attach_twin(devid, found.device.clone(), found.uuid);
            source.set_avoided(item.cont_reading_from_srcdev_mode.get() == AVOID_SOURCE);
        } else {
            tracing::warn!(
                "a replace of device {devid} is unfinished, and its target is not there: it begins \
                 anew when the target is, unless it is cancelled"
            );
        }
        let is_current = found.is_some_and(|found| found.is_current);
        if !is_current && item.cursor_left.get() > 0 {
            let anew = DevReplaceItem { cursor_left: 0.into(), cursor_right: 0.into(), ..item };
            self.put_replace_item(&anew)?;
        }
        Ok(())
    }

    /// In a commit, before its superblocks: the target of a replace that ends takes the place.
    pub(in crate::manager) fn exchange_replaced(&self) -> Result<()> {
        let mut finishing = self.finishing.lock();
        let Some(devid) = finishing.devid.take() else { return Ok(()) };
        let failures = self.volume().device(devid).map_or(0, |device| device.twin_failures());
        if failures > 0 {
            return Err(target_failed(devid));
        }
        finishing.left = Some(self.volume().exchange_twin(devid));
        Ok(())
    }

    fn put_replace_item(&self, item: &DevReplaceItem) -> Result<()> {
        let handle = self.start(ITEMS, Priority::Cleaning)?;
        self.edit_replace_item(item)?;
        handle.end()
    }

    fn edit_replace_item(&self, item: &DevReplaceItem) -> Result<()> {
        let put = self.bookkeeping.edit_devices(|trees| {
            match trees.dev_tree.get(DevReplaceItem::KEY)? {
                Some(_) => trees.dev_tree.replace(DevReplaceItem::KEY, item.as_bytes()),
                None => trees.dev_tree.insert(DevReplaceItem::KEY, item.as_bytes()),
            }
        });
        put.inspect_err(|error| self.abort(error.clone()))
    }

    /// Copies what is left, and ends the replace.
    fn go_on(&self, work: &mut DeviceWork<'_>, mut item: DevReplaceItem) -> Result<()> {
        let devid = item.src_devid.get();
        let source = self.volume().device(devid).ok_or_else(|| no_device(devid))?;
        source.set_avoided(item.cont_reading_from_srcdev_mode.get() == AVOID_SOURCE);
        let copied = self.copy_to_target(work, &mut item, &source);
        source.set_avoided(false);
        let copied = match source.twin_failures() {
            0 => copied,
            failures => {
                item.num_write_errors = failures.into();
                Err(target_failed(devid))
            }
        };
        match copied {
            Ok(()) => {
                self.finish(item, devid)?;
                let was_absent = source.is_missing() || source.is_left_out();
                if was_absent { work.complete_after_loss() } else { Ok(()) }
            }
            Err(error) if source.twin_failures() > 0 => {
                self.give_up(item, devid)?;
                Err(error)
            }
            Err(error) => {
                item.replace_state = replace_state::SUSPENDED.into();
                item.time_stopped = now().into();
                // The error that ended the work is the one to tell.
                let _ = self.put_replace_item(&item).and_then(|()| self.commit());
                Err(error)
            }
        }
    }

    fn copy_to_target(
        &self,
        work: &mut DeviceWork<'_>,
        item: &mut DevReplaceItem,
        source: &VolumeDevice,
    ) -> Result<()> {
        let places = self.places_on(source.devid(), item.cursor_left.get());
        let mut starts = BTreeSet::new();
        let groups = places.iter().filter(|place| starts.insert(place.group.start()));
        work.progress.total_bytes += groups.map(|place| place.group.used()).sum::<u64>();
        for place in places {
            if starts.remove(&place.group.start())
                && let Some(held) = Held::new(self, &place.group)?
            {
                let mut advance = |bytes| work.advance(bytes);
                let moved = Copier::new(self, &mut advance)?.copy_to_other_layout(&held.group)?;
                let bad_bytes = moved.damaged_bytes + moved.unreadable_bytes;
                let errors = bad_bytes / u64::from(self.volume().sectorsize());
                item.num_uncorrectable_read_errors += errors;
                work.moved.add(&moved);
            }
            if source.twin_failures() > 0 {
                return Err(target_failed(source.devid()));
            }
            item.cursor_left = place.end.into();
            item.cursor_right = place.end.into();
            self.put_replace_item(item)?;
            self.commit()?;
        }
        Ok(())
    }

    /// The stripes on a device that end after an address, in order.
    fn places_on(&self, devid: u64, after: u64) -> Vec<Stripe> {
        let groups = self.space().groups();
        let mut places: Vec<Stripe> = groups
            .into_iter()
            .flat_map(|group| {
                let chunk = group.chunk();
                let bytes = chunk.bytes_per_stripe();
                let on_it = chunk.stripes().iter().filter(|stripe| stripe.devid == devid);
                let ends: Vec<u64> = on_it.map(|stripe| stripe.physical.0 + bytes).collect();
                ends.into_iter().map(move |end| Stripe { end, group: group.clone() })
            })
            .filter(|place| place.end > after)
            .collect();
        places.sort_by_key(|place| place.end);
        places
    }

    fn finish(&self, mut item: DevReplaceItem, devid: u64) -> Result<()> {
        item.replace_state = replace_state::FINISHED.into();
        item.time_stopped = now().into();
        let handle = self.start(ITEMS, Priority::Cleaning)?;
        self.edit_replace_item(&item)?;
        // The commit that has the item exchanges the devices.
        self.finishing.lock().devid = Some(devid);
        handle.end()?;
        self.commit()?;
        self.space().change_devices(|devices| {
            devices.change(devid, |device| device.is_usable = true);
        });
        let left = self.finishing.lock().left.take();
        if let Some(left) = left
            && let Err(error) = left.forget_superblocks()
        {
            // A device that fails is often the reason for replacing it.
            tracing::warn!("{}: it is replaced, and keeps its superblocks: {error}", left.name());
        }
        Ok(())
    }

    fn give_up(&self, mut item: DevReplaceItem, devid: u64) -> Result<()> {
        item.replace_state = replace_state::CANCELED.into();
        item.time_stopped = now().into();
        self.put_replace_item(&item)?;
        let source = self.volume().device(devid);
        if let Some(source) = &source {
            source.set_avoided(false);
        }
        let target = self.volume().detach_twin(devid);
        self.commit()?;
        if let Some(target) = target
            && let Err(error) = target.forget_superblocks()
        {
            tracing::warn!("{}: it keeps its superblocks: {error}", target.name());
        }
        Ok(())
    }
}

/// A stripe on the device.
struct Stripe {
    end: u64,
    group: Arc<Group>,
}

/// A group that is not removed until this is dropped.
struct Held {
    group: Arc<Group>,
}

impl Held {
    /// `None` if the group is gone.
    fn new(manager: &TransactionManager, group: &Group) -> Result<Option<Self>> {
        Ok(manager.bookkeeping.hold_group(group.start())?.map(|group| Self { group }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.group.set_moves(false);
    }
}

fn target_failed(devid: u64) -> Error {
    let reason = format!(
        "the device that was to take the place of device {devid} fails: the replace is cancelled"
    );
    Error::Devices(reason)
}

/// Seconds since 1970.
fn now() -> u64 {
    let (seconds, _) = larder_device::now();
    u64::try_from(seconds).unwrap_or_default()
}
