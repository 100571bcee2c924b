//! What there is to know about the file system and its devices.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder_ioctl::abi::{DevInfoArgs, FeatureFlags, FsInfoArgs, LABEL_BYTES, SpaceArgs, SpaceInfo};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::{Ioctl, Outcome, Server, failed, padded, text};
use crate::server::Call;

/// `BTRFS_FS_INFO_FLAG_*` for the fields that are filled besides the old ones: checksums, generation,
/// uuid of the metadata.
const FILLED: u64 = 0b111;

impl Server {
    pub(super) fn filesystem_info(&self, io: &mut Ioctl<'_>) -> Outcome {
        let filesystem = &self.filesystem;
        let devices = filesystem.devices();
        let (csum_type, csum_size) = filesystem.checksum();
        io.output(&FsInfoArgs {
            max_id: devices.iter().map(|device| device.id).max().unwrap_or(0),
            num_devices: devices.len() as u64,
            fsid: *filesystem.uuid().as_bytes(),
            nodesize: filesystem.node_bytes(),
            sectorsize: filesystem.sector_bytes(),
            clone_alignment: filesystem.sector_bytes(),
            csum_type,
            csum_size,
            flags: FILLED,
            generation: filesystem.generation(),
            metadata_uuid: *filesystem.metadata_uuid().as_bytes(),
            ..FsInfoArgs::new_zeroed()
        })
    }

    pub(super) fn device_info(&self, io: &mut Ioctl<'_>) -> Outcome {
        let asked: DevInfoArgs = io.input()?;
        let devices = self.filesystem.devices();
        let wanted = |id: u64, uuid: &[u8; 16]| {
            id == asked.devid && (asked.uuid == [0; 16] || asked.uuid == *uuid)
        };
        let device = devices.iter().find(|device| wanted(device.id, device.uuid.as_bytes()));
        let device = device.ok_or(Errno::NODEV)?;
        io.output(&DevInfoArgs {
            devid: device.id,
            uuid: *device.uuid.as_bytes(),
            bytes_used: device.allocated_bytes,
            total_bytes: device.total_bytes,
            path: padded(device.name.as_deref().unwrap_or_default().as_bytes()),
            ..DevInfoArgs::new_zeroed()
        })
    }

    pub(super) fn features(&self, io: &mut Ioctl<'_>) -> Outcome {
        let (compat, compat_ro, incompat) = self.filesystem.feature_bits();
        io.output(&FeatureFlags { compat, compat_ro, incompat })
    }

    pub(super) fn get_label(&self, io: &mut Ioctl<'_>) -> Outcome {
        io.output(&padded::<LABEL_BYTES>(self.filesystem.label().as_bytes()))
    }

    pub(super) fn set_label(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        self.check_privileged(call)?;
        let label: [u8; LABEL_BYTES] = io.input()?;
        self.filesystem.set_label(OsStr::from_bytes(text(&label))).map_err(failed)
    }

    /// Makes all that was done durable, and returns the transaction that did it.
    pub(super) fn start_sync(&self, io: &mut Ioctl<'_>) -> Outcome {
        self.filesystem.sync().map_err(failed)?;
        io.output(&self.filesystem.generation())
    }

    /// What block groups there are and what of them is used; how many kinds there are if there is no room
    /// for any.
    pub(super) fn space_info(&self, io: &mut Ioctl<'_>) -> Outcome {
        let (asked, more) = io.input_and_more::<SpaceArgs>()?;
        let spaces = self.filesystem.space().map_err(failed)?;
        let slots = (more.len() / size_of::<SpaceInfo>()) as u64;
        let slots = usize::try_from(asked.space_slots.min(slots)).unwrap_or(0);
        let total = if slots == 0 { spaces.len() } else { spaces.len().min(slots) };
        io.output(&SpaceArgs { total_spaces: total as u64, ..asked })?;
        spaces.iter().take(slots).try_for_each(|space| {
            io.output(&SpaceInfo {
                flags: space.flags(),
                total_bytes: space.total_bytes,
                used_bytes: space.used_bytes,
            })
        })
    }
}
