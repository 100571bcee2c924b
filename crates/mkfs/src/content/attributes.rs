//! Attributes of inodes.

use larder_format::item::{InodeFlags, InodeItem, Timespec};
use rustix::fs::Stat;
use zerocopy::FromZeros;

use crate::settings::{GENERATION, Settings};

/// `S_IFDIR | 0755`.
const DIRECTORY_MODE: u32 = 0o040_755;

/// The fields of an inode item that do not depend on the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
    otime: Timespec,
}

impl Attributes {
    /// The attributes in the source, as the settings change them.
    pub(crate) fn of_source(status: &Stat, settings: &Settings) -> Self {
        let time = |seconds: i64, nanoseconds: u64| {
            let time = Timespec::new(seconds, nanoseconds as u32);
            if settings.clamp_times && settings.now.seconds() <= seconds {
                settings.now
            } else {
                time
            }
        };
        let (owner, map) = (settings.owner, &settings.owner_map);
        let (major, minor) = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
        Self {
            mode: status.st_mode,
            uid: owner.map_or_else(|| map.users.inner(status.st_uid), |owner| owner.uid),
            gid: owner.map_or_else(|| map.groups.inner(status.st_gid), |owner| owner.gid),
            rdev: u64::from(major) << 20 | u64::from(minor),
            atime: time(status.st_atime, status.st_atime_nsec),
            mtime: time(status.st_mtime, status.st_mtime_nsec),
            ctime: time(status.st_ctime, status.st_ctime_nsec),
            otime: settings.now,
        }
    }

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
