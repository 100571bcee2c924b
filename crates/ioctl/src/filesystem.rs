//! The file system as a whole.

use std::io;
use std::os::fd::AsFd;

use larder_format::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{
    DEV_INFO, DevInfoArgs, FS_INFO, FsInfoArgs, GET_FSLABEL, LABEL_BYTES, SET_FSLABEL, SPACE_INFO,
    SYNC, SpaceArgs, SpaceInfo,
};
use crate::call;
use crate::invalid::invalid;

/// The most kinds of block groups.
const MOST_SPACES: usize = 64;

/// The identity of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemInfo {
    /// Its uuid.
    pub uuid: Uuid,
    /// The greatest id of a device.
    pub max_device_id: u64,
    /// Bytes in a sector, the unit of data.
    pub sector_bytes: u32,
}

/// A device of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its id in the file system.
    pub id: u64,
    /// Its uuid.
    pub uuid: Uuid,
    /// The uuid of the file system that it belongs to, which for a seed is another one. Nil for
    /// kernels before 6.7.
    pub filesystem: Uuid,
    /// Bytes of it that the file system may use.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub allocated_bytes: u64,
    /// Its path; empty if it is missing.
    pub path: Vec<u8>,
}

/// All block groups of one kind and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Their flags (`BTRFS_BLOCK_GROUP_*`).
    pub flags: u64,
    /// Bytes that they can hold.
    pub total_bytes: u64,
    /// Bytes that extents use of that.
    pub used_bytes: u64,
}

/// Makes all changes of the file system durable.
pub fn sync(inside: impl AsFd) -> io::Result<()> {
    // Makes the kernel send a FUSE server its dirty data, which an ioctl does not.
    rustix::fs::syncfs(&inside)?;
    call::plain::<SYNC>(inside)
}

/// The label; empty if there is none.
pub fn label(inside: impl AsFd) -> io::Result<Vec<u8>> {
    let label: [u8; LABEL_BYTES] = call::read::<GET_FSLABEL, _>(inside)?;
    Ok(text(&label).to_vec())
}

/// Changes the label: one line of at most 255 bytes.
pub fn set_label(inside: impl AsFd, label: &[u8]) -> io::Result<()> {
    let mut bytes = [0; LABEL_BYTES];
    if label.len() >= LABEL_BYTES || label.contains(&0) || label.contains(&b'\n') {
        return Err(invalid("a label is one line of at most 255 bytes"));
    }
    bytes[..label.len()].copy_from_slice(label);
    call::write::<SET_FSLABEL, _>(inside, bytes)
}

/// Describes the file system.
pub fn filesystem_info(inside: impl AsFd) -> io::Result<FilesystemInfo> {
    let info: FsInfoArgs = call::read::<FS_INFO, _>(inside)?;
    Ok(FilesystemInfo {
        uuid: Uuid::from_bytes(info.fsid),
        max_device_id: info.max_id,
        sector_bytes: info.sectorsize,
    })
}

/// The devices of the file system in the order of their ids, including missing ones.
pub fn devices(inside: impl AsFd) -> io::Result<Vec<DeviceInfo>> {
    let info = filesystem_info(&inside)?;
    let mut devices = Vec::new();
    // Ids may have gaps, but no answer can make this loop endless.
    for devid in 0..=info.max_device_id.min(u64::from(u16::MAX)) {
        let mut args = DevInfoArgs { devid, ..DevInfoArgs::new_zeroed() };
        match call::update::<DEV_INFO, _>(&inside, &mut args) {
            Ok(()) => devices.push(DeviceInfo {
                id: args.devid,
                uuid: Uuid::from_bytes(args.uuid),
                filesystem: Uuid::from_bytes(args.fsid),
                total_bytes: args.total_bytes,
                allocated_bytes: args.bytes_used,
                path: text(&args.path).to_vec(),
            }),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            }
            Err(error) => return Err(error),
        }
    }
    Ok(devices)
}

/// Allocated and used space by type and profile. The kernel adds one entry, for space that it
/// reserves in memory.
pub fn spaces(inside: impl AsFd) -> io::Result<Vec<SpaceUsage>> {
    let mut bytes = vec![0; size_of::<SpaceArgs>() + MOST_SPACES * size_of::<SpaceInfo>()];
    let args = SpaceArgs { space_slots: MOST_SPACES as u64, total_spaces: 0 };
    bytes[..size_of_val(&args)].copy_from_slice(args.as_bytes());
    let array_bytes =
        |args: &SpaceArgs| args.space_slots.saturating_mul(size_of::<SpaceInfo>() as u64);
    call::with_more::<SpaceArgs>(inside, SPACE_INFO, &mut bytes, array_bytes, None)?;
    let short = || invalid("an answer that is too short");
    let (args, mut rest) = SpaceArgs::read_from_prefix(&bytes).map_err(|_| short())?;
    let mut spaces = Vec::new();
    for _ in 0..args.total_spaces {
        let (space, behind) = SpaceInfo::read_from_prefix(rest).map_err(|_| short())?;
        let SpaceInfo { flags, total_bytes, used_bytes } = space;
        spaces.push(SpaceUsage { flags, total_bytes, used_bytes });
        rest = behind;
    }
    Ok(spaces)
}

/// The text in `bytes`, up to its zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
