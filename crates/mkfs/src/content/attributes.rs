//! Attributes of inodes.

use larder_format::item::{InodeFlags, InodeItem, Timespec};
use zerocopy::FromZeros;

use crate::settings::{GENERATION, Settings};

/// `S_IFDIR | 0755`.
const DIRECTORY_MODE: u32 = 0o040_755;

/// The fields of an inode item that do not depend on the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u64,
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
    pub(super) ctime: Timespec,
    pub(super) otime: Timespec,
}

impl Attributes {
    /// The attributes of a directory that is not in the source.
    pub(crate) fn of_new_directory(settings: &Settings) -> Self {
        let now = settings.now;
        Self {
            mode: DIRECTORY_MODE,
            uid: settings.owner.map_or(0, |owner| owner.uid),
            gid: settings.owner.map_or(0, |owner| owner.gid),
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            otime: now,
        }
    }

    /// The inode item. `size` and `nbytes` are in bytes.
    pub(crate) fn inode_item(
        &self,
        nlink: u32,
        size: u64,
        nbytes: u64,
        flags: InodeFlags,
    ) -> InodeItem {
        InodeItem {
            generation: GENERATION.into(),
            transid: GENERATION.into(),
            size: size.into(),
            nbytes: nbytes.into(),
            nlink: nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            mode: self.mode.into(),
            rdev: self.rdev.into(),
            flags: flags.bits().into(),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            otime: self.otime,
            ..InodeItem::new_zeroed()
        }
    }
}
