//! What the file system and its devices are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{GlobalReserve, Space};
use larder_ioctl::abi::{
    DevInfoArgs, FeatureFlags, FsInfoArgs, GLOBAL_RESERVE, LABEL_BYTES, SpaceArgs, SpaceInfo,
};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::FromZeros;

use super::call::{Ioctl, padded, text};
use crate::server::call::{Outcome, failed};
use crate::server::data::missing_data;

/// `BTRFS_FS_INFO_FLAG_*` of the fields that are filled besides the old ones: checksums,
/// generation, metadata UUID.
const FILLED: u64 = 0b111;

pub(super) fn filesystem(ioctl: &mut Ioctl<'_>) -> Outcome {
    let filesystem = &ioctl.server.filesystem;
    let devices = filesystem.devices();
    let (csum_type, csum_size) = filesystem.checksum();
    ioctl.output(&FsInfoArgs {
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

pub(super) fn device(ioctl: &mut Ioctl<'_>) -> Outcome {
    let asked: DevInfoArgs = ioctl.input()?;
    let devices = ioctl.server.filesystem.devices();
    let wanted = |id: u64, uuid: &[u8; 16]| {
        id == asked.devid && (asked.uuid == [0; 16] || asked.uuid == *uuid)
    };
    let device = devices.iter().find(|device| wanted(device.id, device.uuid.as_bytes()));
    let device = device.ok_or(Errno::NODEV)?;
    let member = ioctl.server.filesystem.filesystem_of_device(device.id).ok_or(Errno::NODEV)?;
    ioctl.output(&DevInfoArgs {
        fsid: *member.as_bytes(),
        devid: device.id,
        uuid: *device.uuid.as_bytes(),
        bytes_used: device.allocated_bytes,
        total_bytes: device.total_bytes,
        path: padded(device.name.as_deref().unwrap_or_default().as_bytes()),
        ..DevInfoArgs::new_zeroed()
    })
}

pub(super) fn features(ioctl: &mut Ioctl<'_>) -> Outcome {
    let (compat, compat_ro, incompat) = ioctl.server.filesystem.feature_bits();
    ioctl.output(&FeatureFlags { compat, compat_ro, incompat })
}

pub(super) fn get_label(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.output(&padded::<LABEL_BYTES>(ioctl.server.filesystem.label().as_bytes()))
}

pub(super) fn set_label(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    ioctl.check_writable()?;
    let label: [u8; LABEL_BYTES] = ioctl.input()?;
    ioctl.server.filesystem.set_label(OsStr::from_bytes(text(&label))).map_err(failed)
}

/// Commits all changes, and returns the generation of the commit.
/// Makes everything durable, also what only the kernel has.
pub(super) fn sync(ioctl: &Ioctl<'_>) -> Outcome {
    for notice in missing_data(ioctl.server) {
        ioctl.call.kernel.now_or_soon(notice);
    }
    ioctl.server.filesystem.sync().map_err(failed)
}

pub(super) fn start_sync(ioctl: &mut Ioctl<'_>) -> Outcome {
    sync(ioctl)?;
    ioctl.output(&ioctl.server.filesystem.generation())
}

/// The kinds of block groups and the space in each, and the reserve. Without room for any, their
/// number.
pub(super) fn space(ioctl: &mut Ioctl<'_>) -> Outcome {
    let (asked, more) = ioctl.input_and_more::<SpaceArgs>()?;
    let filesystem = &ioctl.server.filesystem;
    let of_groups = |space: &Space| SpaceInfo {
        flags: space.flags(),
        total_bytes: space.total_bytes,
        used_bytes: space.used_bytes,
    };
    let of_reserve = |reserve: GlobalReserve| SpaceInfo {
        flags: GLOBAL_RESERVE,
        total_bytes: reserve.total_bytes,
        used_bytes: reserve.used_bytes,
    };
    let mut spaces: Vec<_> = filesystem.space().map_err(failed)?.iter().map(of_groups).collect();
    spaces.extend(filesystem.global_reserve().map(of_reserve));
    let slots = (more.len() / size_of::<SpaceInfo>()) as u64;
    let slots = usize::try_from(asked.space_slots.min(slots)).unwrap_or(0);
    let total = if slots == 0 { spaces.len() } else { spaces.len().min(slots) };
    ioctl.output(&SpaceArgs { total_spaces: total as u64, ..asked })?;
    spaces.iter().take(slots).try_for_each(|space| ioctl.output(space))
}
