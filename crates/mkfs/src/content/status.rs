//! Attributes of what the source has.

use larder_format::item::Timespec;
use rustix::fs::Stat;

use super::Attributes;
use crate::settings::Settings;

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
}
