//! What identifies files and block devices, whatever their paths.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, makedev, statx};

/// The identity of a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A block device, by its number.
    Block(u64),
    /// A regular file, by the number of its file system and its own.
    Regular(u64, u64),
    /// Anything else, likewise.
    Other(u64, u64),
}

impl Identity {
    /// That of the file which `path` leads to, if there is one. This waits for no server, as `path`
    /// may lead into a mount of one.
    pub fn at(path: &Path) -> Option<Self> {
        let mask = StatxFlags::TYPE | StatxFlags::INO;
        statx(CWD, path, AtFlags::STATX_DONT_SYNC, mask).ok().map(|found| Self::of_found(&found))
    }

    /// That of an open file.
    pub fn of(file: impl AsFd) -> Option<Self> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let mask = StatxFlags::TYPE | StatxFlags::INO;
        statx(file, "", flags, mask).ok().map(|found| Self::of_found(&found))
    }

    /// Whether it is something that a file system can be kept on.
    pub(crate) fn is_storage(self) -> bool {
        matches!(self, Self::Block(_) | Self::Regular(..))
    }

    fn of_found(found: &Statx) -> Self {
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => {
                Self::Block(makedev(found.stx_rdev_major, found.stx_rdev_minor))
            }
            FileType::RegularFile => Self::Regular(device, found.stx_ino),
            _ => Self::Other(device, found.stx_ino),
        }
    }
}
