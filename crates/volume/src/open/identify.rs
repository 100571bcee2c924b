//! Identifying devices.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_device::Device;
use larder_format::item::DevItem;
use larder_format::superblock::SUPER_FLAG_SEEDING;
use larder_format::{Superblock, Uuid};

use super::separate::{UsedSeparately, is_earlier_commit, is_same_commit};
use super::{MissingDevice, OpenError};
use crate::chunk::ChunkMap;
use crate::member::{FoundTwin, TWIN_DEVID, VolumeDevice};
use crate::problem::ReadError;
use crate::scan::{scan, scan_copy};

/// The devices that were given, and the superblock that counts.
pub(super) struct GivenDevices {
    pub(super) newest: Box<Superblock>,
    devices: Vec<(Arc<dyn Device>, Box<Superblock>)>,
    /// UUIDs of devices whose first copy is older than the superblock that counts.
    older_first_copies: Vec<Uuid>,
}

impl GivenDevices {
    pub(super) fn scan(
        devices: Vec<Arc<dyn Device>>,
        superblock_copy: Option<usize>,
    ) -> Result<Self, OpenError> {
        let superblock_of = |device: &Arc<dyn Device>| match superblock_copy {
            Some(copy) => scan_copy(&**device, copy),
            None => scan(&**device),
        };
        let mut found = Vec::with_capacity(devices.len());
        let mut older_first_copies = Vec::new();
        for device in devices {
            let scanned = superblock_of(&device)?;
            if scanned.has_older_first_copy() {
                older_first_copies.push(scanned.superblock.dev_item.uuid());
            }
            found.push((device, scanned.superblock));
        }
        // A file system that grew from a seed is newer than its seed and not a seed itself, or the
        // seed of another that is not here.
        let rank = |superblock: &Superblock| {
            let has_log = superblock.log_root.get() != 0;
            (!is_seeding(superblock), superblock.generation.get(), has_log)
        };
        let superblocks = found.iter().map(|(_, superblock)| superblock);
        let newest = superblocks.rev().max_by_key(|s| rank(s)).ok_or(OpenError::NoDevices)?.clone();
        let found = without_those_that_left(found);
        let found = Self { newest, devices: found, older_first_copies };
        found.check_foreign()?;
        found.check_duplicates()?;
        found.check_commits()?;
        Ok(found)
    }

    /// The name of the device that has the newest superblock.
    pub(super) fn name_of_newest(&self) -> &str {
        let is_it = |superblock: &Superblock| {
            superblock.generation == self.newest.generation
                && superblock.dev_item.uuid == self.newest.dev_item.uuid
        };
        let newest = self.devices.iter().find(|(_, superblock)| is_it(superblock));
        newest.map(|(device, _)| device.name()).unwrap_or_default()
    }

    /// Checks that every device is of the file system, or of a seed, which the chunk tree must
    /// name.
    fn check_foreign(&self) -> Result<(), OpenError> {
        let is_foreign = |s: &Superblock| s.fsid != self.newest.fsid && !is_seeding(s);
        match self.devices.iter().find(|(_, superblock)| is_foreign(superblock)) {
            Some((device, superblock)) => Err(self.foreign(device, superblock)),
            None => Ok(()),
        }
    }

    fn foreign(&self, device: &Arc<dyn Device>, superblock: &Superblock) -> OpenError {
        OpenError::ForeignDevice {
            device: device.name().to_owned(),
            devid: superblock.dev_item.devid.get(),
            fsid: superblock.fsid(),
            wanted: self.newest.fsid(),
        }
    }

    fn check_duplicates(&self) -> Result<(), OpenError> {
        let mut by_id: Vec<_> = self
            .devices
            .iter()
            .map(|(device, superblock)| (superblock.dev_item.devid.get(), device.name()))
            .collect();
        by_id.sort_unstable();
        match by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(OpenError::DuplicateDevice {
                devid: pair[0].0,
                first: pair[0].1.to_owned(),
                second: pair[1].1.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Checks that every device is of the newest commit, or of one that led to it.
    fn check_commits(&self) -> Result<(), UsedSeparately> {
        let newest = &*self.newest;
        let is_newest =
            |s: &Superblock| (s.generation, s.log_root) == (newest.generation, newest.log_root);
        let mut members =
            self.devices.iter().filter(|(_, superblock)| superblock.fsid == newest.fsid);
        let is_apart = |s: &Superblock| {
            if s.generation == newest.generation {
                !is_same_commit(s, newest)
            } else {
                !is_earlier_commit(s, newest)
            }
        };
        let Some((second, _)) = members.clone().find(|(_, superblock)| is_apart(superblock)) else {
            return Ok(());
        };
        let (first, _) = members
            .find(|(device, superblock)| is_newest(superblock) && !Arc::ptr_eq(device, second))
            .expect("the newest is of one of them");
        Err(UsedSeparately { first: first.name().to_owned(), second: second.name().to_owned() })
    }

    /// The devices according to their own superblocks, for reading the chunk tree.
    pub(super) fn provisional(&self) -> Vec<VolumeDevice> {
        self.devices
            .iter()
            .map(|(device, superblock)| self.member(superblock.dev_item, device, superblock))
            .collect()
    }

    fn member(
        &self,
        dev_item: DevItem,
        device: &Arc<dyn Device>,
        superblock: &Superblock,
    ) -> VolumeDevice {
        let generation = superblock.generation.get();
        let is_seed = superblock.fsid != self.newest.fsid;
        // Of the same generation, the superblock with a log is newer: a commit makes logs void, and
        // ends the generation.
        let has_all = (superblock.generation, superblock.log_root)
            == (self.newest.generation, self.newest.log_root);
        let is_stale = AtomicBool::new(!is_seed && !has_all);
        VolumeDevice {
            is_stale,
            is_seed,
            has_older_first_copy: self.older_first_copies.contains(&dev_item.uuid()),
            ..VolumeDevice::member(dev_item, Some(device.clone()), Some(generation))
        }
    }

    /// The devices that the chunk tree names. Leaves out others of the same file system, and refuses
    /// those of another one.
    pub(super) fn into_members(
        mut self,
        dev_items: &[DevItem],
    ) -> Result<(Vec<VolumeDevice>, Option<FoundTwin>), OpenError> {
        let mut members = Vec::with_capacity(dev_items.len());
        let own_fsid = Uuid::from_bytes(self.newest.dev_item.fsid);
        for item in dev_items {
            let is_item = |(_, s): &(_, Box<Superblock>)| {
                s.dev_item.devid == item.devid && s.dev_item.uuid == item.uuid
            };
            members.push(match self.devices.iter().position(is_item) {
                Some(at) => {
                    let (device, superblock) = self.devices.swap_remove(at);
                    self.member(*item, &device, &superblock)
                }
                None => VolumeDevice {
                    is_seed: item.fsid() != own_fsid,
                    ..VolumeDevice::missing(*item)
                },
            });
        }
        let twin = self.take_twin();
        // A crash came before a device that was removed lost its superblock, or while one was added.
        let is_own = |superblock: &Superblock| superblock.fsid == self.newest.fsid;
        let has_member = members.iter().any(|member| !member.is_missing());
        for (device, superblock) in &self.devices {
            if !is_own(superblock) || !has_member {
                return Err(self.foreign(device, superblock));
            }
            let (name, devid) = (device.name(), superblock.dev_item.devid);
            tracing::warn!(
                "{name}: device {devid} is none of the file system, which was removed from it or \
                 never added: it is left out"
            );
        }
        Ok((members, twin))
    }

    /// The device that is to take the place of another, if there is one.
    fn take_twin(&mut self) -> Option<FoundTwin> {
        let is_twin = |superblock: &Superblock| {
            superblock.fsid == self.newest.fsid && superblock.dev_item.devid == TWIN_DEVID
        };
        let at = self.devices.iter().position(|(_, superblock)| is_twin(superblock))?;
        let (device, superblock) = self.devices.swap_remove(at);
        let commit = |superblock: &Superblock| (superblock.generation, superblock.log_root);
        let is_current = commit(&superblock) == commit(&self.newest);
        Some(FoundTwin { device, uuid: superblock.dev_item.uuid(), is_current })
    }

    /// The error if the chunk tree cannot be read: missing devices of the system chunks if there
    /// are any, otherwise `error`.
    pub(super) fn blame_missing(&self, system_chunks: &ChunkMap, error: ReadError) -> OpenError {
        let is_here = |devid: u64, uuid: Uuid| {
            self.devices.iter().any(|(_, superblock)| {
                let item = &superblock.dev_item;
                item.devid.get() == devid && item.uuid() == uuid
            })
        };
        let mut missing: Vec<MissingDevice> = system_chunks
            .iter()
            .flat_map(|chunk| chunk.stripes())
            .filter(|stripe| !is_here(stripe.devid, stripe.dev_uuid))
            .map(|stripe| MissingDevice { devid: stripe.devid, uuid: stripe.dev_uuid })
            .collect();
        missing.sort_by_key(|missing| missing.devid);
        missing.dedup();
        match self.devices.first() {
            Some((device, _)) if !missing.is_empty() => {
                let given = device.name().to_owned();
                OpenError::MissingDevices { given, missing, can_do_without: false }
            }
            _ => OpenError::ChunkTree(error),
        }
    }
}

fn is_seeding(superblock: &Superblock) -> bool {
    superblock.flags.get() & SUPER_FLAG_SEEDING != 0
}

/// Leaves out each device whose place another one has taken: that one has its id and UUID, and is
/// newer. A crash came before the first lost its superblock.
fn without_those_that_left(
    devices: Vec<(Arc<dyn Device>, Box<Superblock>)>,
) -> Vec<(Arc<dyn Device>, Box<Superblock>)> {
    let identity = |s: &Superblock| (s.fsid, s.dev_item.devid, s.dev_item.uuid);
    let newer_of = |superblock: &Superblock| {
        let is_newer = |(_, other): &&(Arc<dyn Device>, Box<Superblock>)| {
            identity(other) == identity(superblock) && other.generation > superblock.generation
        };
        devices.iter().find(is_newer)
    };
    let left: Vec<bool> = devices
        .iter()
        .map(|(device, superblock)| {
            let newer = newer_of(superblock);
            if let Some((newer, _)) = newer {
                tracing::warn!(
                    "{}: {} has taken its place as device {}: it is left out",
                    device.name(),
                    newer.name(),
                    superblock.dev_item.devid
                );
            }
            newer.is_some()
        })
        .collect();
    devices.into_iter().zip(left).filter(|(_, left)| !left).map(|(device, _)| device).collect()
}
