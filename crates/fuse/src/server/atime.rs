//! When something was last read.
//!
//! The kernel leaves these times to the server, which sees only reads of what the kernel has not kept. Where they
//! are wanted, the kernel drops at each opening what it keeps of a file or directory whose time the next read is to
//! change: so each opening that reads counts once at least. Where they are not wanted, which is so unless somebody
//! asks, directories are opened without a request.

use larder::{FileType, Inode, InodeFlags, Metadata, SetAttributes, Timestamp};

use super::Server;

/// Seconds after which a time is not kept any longer, though nothing was changed since.
const DAY_SECONDS: i64 = 24 * 3600;

/// Which reads change the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// None.
    #[default]
    Never,
    /// The first after a change, and one a day.
    Relative,
    /// All that the server sees.
    Always,
}

impl Server {
    /// Something was read.
    pub(super) fn accessed(&self, inode: &Inode) {
        if self.options.access_times == AccessTimes::Never {
            return;
        }
        let metadata = inode.metadata();
        if self.is_access_due(inode, &metadata) {
            let (atime, ctime) = (Some(Timestamp::now()), Some(metadata.ctime));
            // What is read-only, or is full, keeps its time.
            let _ =
                inode.set_attributes(&SetAttributes { atime, ctime, ..SetAttributes::default() });
        }
    }

    pub(super) fn is_access_due(&self, inode: &Inode, metadata: &Metadata) -> bool {
        let is_directory = inode.file_type() == FileType::Directory;
        if self.options.nodiratime && is_directory || metadata.flags.contains(InodeFlags::NOATIME) {
            return false;
        }
        match self.options.access_times {
            AccessTimes::Never => false,
            AccessTimes::Relative => is_old(metadata, Timestamp::now()),
            AccessTimes::Always => true,
        }
    }
}

/// Whether the time of last access is not behind that of a change, or is a day old.
fn is_old(metadata: &Metadata, now: Timestamp) -> bool {
    let at = |time: Timestamp| (time.seconds, time.nanoseconds);
    let atime = at(metadata.atime);
    atime <= at(metadata.mtime)
        || atime <= at(metadata.ctime)
        || now.seconds.saturating_sub(atime.0) >= DAY_SECONDS
}
